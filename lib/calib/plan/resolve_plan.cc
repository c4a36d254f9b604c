#include "calib/plan/resolve_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "calib/plan/module_targets.h"
#include "family/expected_tensors.h"
#include "family/wrapper.h"

namespace kvcal {
namespace {

/// Embedding, layers, lm_head, with attention before its Linears: transformers' order.
std::vector<ModuleName> modules_in_order(const ModelConfig& config) {
  std::vector<ModuleName> modules = list_modules(config);
  std::ranges::stable_sort(modules, {}, [](const ModuleName& module) {
    return std::tuple(module.role == Role::kLmHead, module.layer, !is_attention(module));
  });
  return modules;
}

/// Whether a group is for attention modules: it quantizes inputs and no weights.
bool is_for_attention(const QuantScheme& scheme) {
  return !scheme.weights && scheme.input_activations;
}

bool says_something(const Modifier& modifier) {
  return modifier.kv_cache_scheme ||
         std::ranges::any_of(modifier.config_groups,
                             [](const auto& group) { return is_for_attention(group.second); });
}

/// Throws Error where a scheme and a group differ; an equal scheme repeats the group.
void check_both(const Modifier& modifier, const Chosen& group, const ModuleName& module) {
  const auto& inputs = group.scheme->input_activations;
  if (inputs && to_json(*inputs) == to_json(*modifier.kv_cache_scheme)) return;
  fail(target_text(modifier, group.target), " gives ", module.name,
       inputs ? " other args" : " 16 bits", ", and kv_cache_scheme, on line ",
       modifier.kv_place.line, ", FP8 of its own; expected one of both, or the same args");
}

/// Applies one modifier to a module that earlier modifiers may have planned.
void apply(const Modifier& modifier, const Chosen& group, const ModuleName& module,
           PlannedAttention& planned) {
  if (group.scheme && modifier.kv_cache_scheme) check_both(modifier, group, module);
  if (group.scheme) {
    planned.q = group.scheme->input_activations;
    planned.ignored = !planned.q.has_value();
    if (planned.q) planned.kv = *planned.q;
  } else if (modifier.kv_cache_scheme) {
    // Source: compressed-tensors `_apply_kv_cache_scheme`, which replaces earlier args.
    planned.kv = *modifier.kv_cache_scheme;
    planned.q.reset();
    planned.ignored = false;
  }
}

/// Throws Error where layers differ: engines read one scheme for all layers.
void check_alike(std::vector<PlannedAttention>& all, const Recipe& recipe) {
  const auto first = std::ranges::find(all, false, &PlannedAttention::ignored);
  if (first == all.end()) {
    const auto last =
        std::ranges::find_if(recipe.modifiers.rbegin(), recipe.modifiers.rend(), says_something);
    fail(text_of(last->place), "ignore leaves no attention module to calibrate");
  }
  for (PlannedAttention& one : all) {
    if (one.ignored) {
      one.kv = first->kv;
      continue;
    }
    const Strategy a = resolved_strategy(first->kv), b = resolved_strategy(one.kv);
    if (a != b)
      fail(first->module, " has scales by ", name_of(a), " and ", one.module, " by ", name_of(b),
           "; engines read one strategy for all layers");
    if (first->q.has_value() != one.q.has_value())
      fail("of ", first->module, " and ", one.module,
           " one has quantized queries; engines want all attention modules alike");
  }
}

/// Plan of each attention module, in layer order; empty where the recipe does not mention
/// attention. The last modifier that names a module decides, by a group for attention (queries,
/// keys and values), a kv_cache_scheme, or both where their args are equal; used collects the
/// deciding groups. Throws Error where the two differ in one modifier, where ignore leaves no
/// module, and for modules that no engine can load together.
std::vector<PlannedAttention> plan_attention(const Recipe& recipe, const NamedModules& modules,
                                             std::vector<const QuantScheme*>& used) {
  std::vector<PlannedAttention> all;
  if (std::ranges::none_of(recipe.modifiers, says_something)) return all;
  for (const ModuleName& module : modules.run)
    if (is_attention(module))
      all.push_back(
          {.module = module.name, .layer = module.layer, .ignored = true, .kv = {}, .q = {}});
  for (const Modifier& modifier : recipe.modifiers) {
    const Targets targets(modifier);
    auto planned = all.begin();
    for (const ModuleName& module : modules.run) {
      if (!is_attention(module)) continue;
      if (!is_ignored(modifier, module)) {
        const Chosen group = targets.choose_for_attention(module, modules.run);
        if (group.scheme) used.push_back(group.scheme);
        apply(modifier, group, module, *planned);
      }
      ++planned;
    }
  }
  check_alike(all, recipe);
  return all;
}

class Planner {
 public:
  Planner(const Recipe& recipe, const ModelConfig& config, std::vector<UnrunModule> unrun)
      : recipe_(recipe), config_(config), modules_{modules_in_order(config), std::move(unrun)} {
    for (const Modifier& modifier : recipe.modifiers) targets_.emplace_back(modifier);
  }

  QuantPlan plan(Diagnostics& diagnostics) {
    check_patterns(recipe_, modules_);
    plan_.attention_class = config_.architecture->attention_class;
    for (const ModuleName& module : modules_.run)
      if (!is_attention(module)) plan_linear(module);
    plan_.attention = plan_attention(recipe_, modules_, used_);
    check_shared_caches();
    check_int8_cache();
    if (!plan_.quantizes_kv() && !plan_.quantizes_weights() && !has_group_for_weights())
      fail("the recipe quantizes nothing of this model");
    check_used(diagnostics);
    find_left_out();
    list_unquantized();
    plan_split();
    plan_tied();
    settle_targets();
    return std::move(plan_);
  }

 private:
  /// Throws Error where a layer that reads another one's cache is ignored and that one is not, or
  /// the reverse: the cache is stored one way.
  void check_shared_caches() const {
    const auto planned_of = [&](int64_t layer) {
      return std::ranges::find(plan_.attention, layer, &PlannedAttention::layer);
    };
    for (const PlannedAttention& planned : plan_.attention) {
      const auto source = planned_of(config_.layer(planned.layer).cache_layer);
      KVCAL_CHECK(source != plan_.attention.end());
      if (source->ignored != planned.ignored)
        fail(planned.module, " reads the cache of ", source->module, ", and the recipe ignores ",
             (planned.ignored ? planned : *source).module,
             " alone; expected that it ignores both or neither");
    }
  }

  /// Throws Error where the plan has INT8 scales of a latent.
  void check_int8_cache() const {
    const auto is_int8 = [](const PlannedAttention& planned) {
      return !planned.ignored && planned.kv.type == QuantType::kInt;
    };
    if (config_.architecture->has_latent_attention && std::ranges::any_of(plan_.attention, is_int8))
      fail(
          "the model keeps a latent (MLA), of which no engine has an INT8 cache with scales; "
          "expected kv_cache_scheme of type: float");
  }

  /// The last modifier that matches decides.
  Chosen choose(const ModuleName& module) const {
    Chosen chosen;
    for (const Targets& targets : targets_)
      if (Chosen own = targets.choose(module); own.scheme) chosen = std::move(own);
    return chosen;
  }

  void plan_linear(const ModuleName& module) {
    const Chosen chosen = choose(module);
    if (!chosen.scheme || !is_quantizable(module, chosen)) return;
    const bool is_embedding = module.role == Role::kEmbedding;
    if (is_embedding && chosen.scheme->input_activations)
      fail(target_text(*chosen.modifier, chosen.target), " quantizes the input of ", module.name,
           ", an embedding; expected weights only");
    const bool is_projection =
        module.role == Role::kEmbeddingIn || module.role == Role::kEmbeddingOut;
    if (is_projection && chosen.scheme->input_activations)
      fail(target_text(*chosen.modifier, chosen.target), " quantizes the input of ", module.name,
           ", a projection of the embedding, which no layer calibrates; expected weights only, or ",
           "this module in ignore");
    used_.push_back(chosen.scheme);
    plan_.linears.push_back({.module = module.name,
                             .layer = module.layer,
                             .group = group_of(*chosen.scheme),
                             .is_embedding = is_embedding});
    quantized_.emplace(module.name, plan_.linears.back().group);
    classes_.insert(module.class_name);
  }

  /// Index of the scheme's group; equal schemes share one, as in compressed-tensors.
  size_t group_of(const QuantScheme& scheme) {
    const auto [known, is_new] = groups_.try_emplace(&scheme, 0);
    if (!is_new) return known->second;
    const auto equal = std::ranges::find_if(
        plan_.groups, [&](const QuantScheme& group) { return to_json(group) == to_json(scheme); });
    known->second = static_cast<size_t>(equal - plan_.groups.begin());
    if (equal == plan_.groups.end()) plan_.groups.push_back(scheme);
    return known->second;
  }

  /// false: the module stays 16-bit, by the scheme or because of its kind.
  static bool is_quantizable(const ModuleName& module, const Chosen& chosen) {
    const auto refuse = [&](std::string_view reason) {
      fail(target_text(*chosen.modifier, chosen.target), " matches ", module.name, reason);
    };
    if (!chosen.scheme->weights) {
      if (chosen.scheme->input_activations)
        refuse(": a group without weights is for attention modules, and must match them alone");
      return false;
    }
    if (module.role == Role::kRouter) {
      if (chosen.by_name) refuse(", a router; engines run it in 16 bits");
      return false;
    }
    if (module.role && is_score(*module.role)) {
      if (chosen.by_name)
        refuse(", a vector that scores residual sums; engines keep it in 16 bits");
      return false;
    }
    if (module.class_name == "Conv1D")
      refuse(", a Conv1D; engines load FP8 weights of Linears, whose rows are outputs");
    if (module.role == Role::kPositionEmbedding)
      refuse(", a table of positions; engines keep it in 16 bits");
    if (module.is_interleaved)
      refuse(", whose rows of gate and up alternate: kvcal keeps it in 16 bits; name it in ignore");
    return true;
  }

  bool has_group_for_weights() const {
    return std::ranges::any_of(recipe_.modifiers, [](const Modifier& modifier) {
      return std::ranges::any_of(modifier.config_groups, [](const auto& group) {
        return group.second.weights.has_value();
      });
    });
  }

  /// Warns of a group that quantizes nothing. Throws Error where no group quantizes a weight: the
  /// recipe does not fit the model.
  void check_used(Diagnostics& diagnostics) const {
    for (const Modifier& modifier : recipe_.modifiers)
      for (const auto& [name, scheme] : modifier.config_groups) {
        const bool is_idle = std::ranges::find(used_, &scheme) == used_.end();
        if (!is_idle || scheme.targets.empty() || (!scheme.weights && !is_for_attention(scheme)))
          continue;
        const std::string text = idle_text(modifier, scheme);
        if (scheme.weights && !plan_.quantizes_weights()) fail(text);
        diagnostics.warn(text);
      }
  }

  /// "line 4, column 9: target 'Linear' matches 1 module (lm_head), and none is left to quantize".
  std::string idle_text(const Modifier& modifier, const QuantScheme& scheme) const {
    const std::string& target = scheme.targets.front();
    std::vector<std::string> names;
    for (const ModuleName& module : modules_.run)
      if (matches(target, module)) names.push_back(module.name);
    std::string text = target_text(modifier, target) + " matches " + std::to_string(names.size()) +
                       (names.size() == 1 ? " module" : " modules");
    for (size_t i = 0; i < std::min<size_t>(names.size(), 3); ++i)
      text += (i == 0 ? " (" : ", ") + names[i];
    if (!names.empty()) text += names.size() > 3 ? ", ...)" : ")";
    text += ", and none is left to quantize";
    const bool has_conv = std::ranges::any_of(
        modules_.run, [](const ModuleName& module) { return module.class_name == "Conv1D"; });
    return has_conv ? text + "; this model's matrices are Conv1D, which engines do not load in FP8"
                    : text;
  }

  /// Finds QuantPlan::left_out, sorted.
  void find_left_out() {
    std::set<std::string_view> unrun;
    std::vector<std::string> names;
    for (const UnrunModule& module : modules_.unrun) {
      unrun.insert(module.name);
      names.push_back(module.name);
    }
    for (const auto& [name, group] : quantized_) names.push_back(name);
    for (const FusedModules& fused : fused_modules(names)) {
      const auto is_unrun = [&](const std::string& member) { return unrun.contains(member); };
      if (is_unrun(fused.members[0])) continue;
      std::ranges::copy_if(fused.members, std::back_inserter(plan_.left_out), is_unrun);
    }
    std::ranges::sort(plan_.left_out);
  }

  bool is_left_out(const UnrunModule& module) const {
    return std::ranges::binary_search(plan_.left_out, module.name);
  }

  /// Lists unquantized modules of quantized classes: class by class, in the order of their first
  /// such module. Source: compressed-tensors `QuantizationConfig.from_pretrained`.
  void list_unquantized() {
    std::vector<std::pair<std::string, std::vector<std::string>>> of_class;
    const auto add = [&](const std::string& class_name, const std::string& module) {
      auto own = std::ranges::find(of_class, class_name, [](const auto& one) { return one.first; });
      if (own == of_class.end()) own = of_class.insert(of_class.end(), {class_name, {}});
      own->second.push_back(module);
    };
    for (const UnrunModule& module : modules_.unrun)
      if (classes_.contains(module.class_name) && !is_left_out(module)) {
        add(module.class_name, module.name);
        plan_.unrun.push_back(module.name);
      }
    auto attention = plan_.attention.begin();
    for (const ModuleName& module : modules_.run)
      if (is_attention(module)) {
        if (attention != plan_.attention.end() && (attention++)->ignored)
          add(module.class_name, module.name);
      } else if (classes_.contains(module.class_name) && !quantized_.contains(module.name)) {
        add(module.class_name, module.name);
        plan_.unquantized.push_back(module.name);
      }
    for (auto& [class_name, modules] : of_class)
      plan_.ignore.insert(plan_.ignore.end(), modules.begin(), modules.end());
    const std::vector<std::string> patterns = outside_patterns(plan_.ignore, config_);
    plan_.ignore.insert(plan_.ignore.end(), patterns.begin(), patterns.end());
  }

  /// Chooses the targets for readers of config.json.
  void settle_targets() {
    const std::set<std::string_view> ignored(plan_.ignore.begin(), plan_.ignore.end());
    std::vector<ReadModule> all;
    for (const UnrunModule& module : modules_.unrun)
      if (!module.class_name.empty() && !is_left_out(module))
        all.push_back({.name = module.name,
                       .class_name = module.class_name,
                       .group = {},
                       .is_ignored = ignored.contains(module.name)});
    for (const ModuleName& module : modules_.run) {
      if (is_attention(module)) continue;
      const auto group = quantized_.find(module.name);
      all.push_back(
          {.name = module.name,
           .class_name = module.class_name,
           .group = group == quantized_.end() ? std::nullopt : std::optional(group->second),
           .is_ignored = ignored.contains(module.name),
           .is_head = module.role == Role::kLmHead});
    }
    const auto targets = readable_targets(plan_.groups, all);
    for (size_t group = 0; group < targets.size(); ++group)
      plan_.groups[group].targets = targets[group];
  }

  /// Plans tensors for all of a layer's stacked experts where one of them is quantized, as
  /// llm-compressor splits them.
  void plan_split() {
    std::set<int64_t> layers;
    for (const ModuleName& module : modules_.run)
      if (module.is_slice && quantized_.contains(module.name)) layers.insert(module.layer);
    if (layers.empty()) return;
    for (const ExpectedTensor& tensor : expected_tensors(config_))
      if (layers.contains(tensor.layer))
        for (ExpertTensor& one : split_into_experts(tensor, config_))
          plan_.split.push_back({.name = std::move(one.name), .slice = std::move(one.slice)});
  }

  void plan_tied() {
    if (!config_.tie_word_embeddings) return;
    for (const ModuleName& module : modules_.run) {
      if (module.role == Role::kEmbedding) plan_.tied_embedding = module.name;
      if (module.role == Role::kLmHead) plan_.tied_head = module.name;
    }
    const auto group_of = [&](const std::string& module) {
      const auto found = std::ranges::find(plan_.linears, module, &PlannedLinear::module);
      return found == plan_.linears.end() ? std::optional<size_t>() : found->group;
    };
    plan_.unties_embedding = group_of(plan_.tied_embedding) != group_of(plan_.tied_head);
  }

  const Recipe& recipe_;
  const ModelConfig& config_;
  const NamedModules modules_;
  std::vector<Targets> targets_;
  QuantPlan plan_;
  std::map<const QuantScheme*, size_t> groups_;
  std::vector<const QuantScheme*> used_;
  std::map<std::string, size_t, std::less<>> quantized_;  ///< module → group
  std::set<std::string, std::less<>> classes_;
};

}  // namespace

QuantPlan resolve_plan(const Recipe& recipe, const ModelConfig& config, Diagnostics& diagnostics,
                       std::vector<UnrunModule> unrun) {
  return Planner(recipe, config, std::move(unrun)).plan(diagnostics);
}

bool has_static_inputs(const QuantPlan& plan) {
  return std::ranges::any_of(plan.linears, [&](const PlannedLinear& linear) {
    const auto& inputs = plan.groups[linear.group].input_activations;
    return inputs && !inputs->dynamic;
  });
}

bool needs_data(const QuantPlan& plan) {
  return plan.quantizes_kv() || has_static_inputs(plan);
}

}  // namespace kvcal
