#include "calib/quant_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/registry.h"
#include "model/expected_tensors.h"
#include "model/modules.h"

namespace kvcal {
namespace {

bool is_attention(const ModuleName& module) {
  return !module.role;
}

/// Embedding, layers, lm_head: the order in which transformers names them.
std::vector<ModuleName> modules_in_order(const ModelConfig& config) {
  std::vector<ModuleName> modules = list_modules(config);
  std::ranges::stable_partition(
      modules, [](const ModuleName& module) { return module.role != Role::kLmHead; });
  return modules;
}

bool matches_name(const std::string& pattern, const ModuleName& module) {
  return matches_target(pattern, module.name, "") ||
         (!module.alias.empty() && matches_target(pattern, module.alias, ""));
}
bool matches(const std::string& pattern, const ModuleName& module) {
  return pattern == module.class_name || matches_name(pattern, module);
}
bool is_ignored(const Modifier& modifier, const ModuleName& module) {
  return std::ranges::any_of(modifier.ignore,
                             [&](const std::string& pattern) { return matches(pattern, module); });
}

void require_match(const std::string& pattern, std::string_view list,
                   const std::vector<ModuleName>& modules) {
  const auto matched = [&](const ModuleName& module) { return matches(pattern, module); };
  if (std::ranges::any_of(modules, matched)) return;
  std::vector<std::string> names;
  for (const ModuleName& module : modules) names.push_back(module.name);
  fail(list, " '", pattern, "' matches no module of the model", did_you_mean(pattern, names));
}

void require_matches(const Recipe& recipe, const std::vector<ModuleName>& modules) {
  for (const Modifier& modifier : recipe.modifiers) {
    // Written beside config groups, they are llm-compressor's default and stand for nothing.
    if (!modifier.has_config_groups)
      for (const std::string& pattern : modifier.targets) require_match(pattern, "target", modules);
    for (const auto& [name, scheme] : modifier.config_groups)
      for (const std::string& pattern : scheme.targets) require_match(pattern, "target", modules);
    for (const std::string& pattern : modifier.ignore) require_match(pattern, "ignore", modules);
  }
}

/// What a module gets, and by which target.
struct Chosen {
  const QuantScheme* scheme = nullptr;
  std::string target;
  bool by_name = false;
};

/// One modifier's targets in the order they are tried.
class Targets {
 public:
  explicit Targets(const Modifier& modifier) : modifier_(modifier) {
    for (const auto& [name, scheme] : modifier.config_groups)
      for (const std::string& target : scheme.targets)
        schemes_[{target.starts_with("re:"), target}] = &scheme;  // of equal targets the last
  }

  Chosen choose(const ModuleName& module) const {
    if (is_ignored(modifier_, module)) return {};
    for (const auto& [target, scheme] : schemes_)
      if (matches_name(target.second, module)) return {scheme, target.second, true};
    for (const auto& [target, scheme] : schemes_)
      if (target.second == module.class_name) return {scheme, target.second, false};
    return {};
  }

 private:
  const Modifier& modifier_;
  std::map<std::pair<bool, std::string>, const QuantScheme*> schemes_;
};

class Planner {
 public:
  Planner(const Recipe& recipe, const ModelConfig& config)
      : recipe_(recipe), config_(config), modules_(modules_in_order(config)) {
    for (const Modifier& modifier : recipe.modifiers) targets_.emplace_back(modifier);
  }

  QuantPlan plan() {
    require_matches(recipe_, modules_);
    plan_.attention_class = config_.architecture->attention_class;
    for (const ModuleName& module : modules_)
      if (!is_attention(module)) plan_linear(module);
    list_unquantized();
    plan_split();
    plan_tied();
    if (quantizes_attention()) plan_attention();
    if (!plan_.quantizes_kv() && !plan_.quantizes_weights())
      fail("the recipe quantizes nothing of this model");
    return std::move(plan_);
  }

 private:
  /// The last modifier that matches decides.
  Chosen choose(const ModuleName& module) const {
    Chosen chosen;
    for (const Targets& targets : targets_)
      if (const Chosen own = targets.choose(module); own.scheme) chosen = own;
    return chosen;
  }

  void plan_linear(const ModuleName& module) {
    const Chosen chosen = choose(module);
    if (!chosen.scheme || !is_quantizable(module, chosen)) return;
    const bool is_embedding = module.role == Role::kEmbedding;
    if (is_embedding && chosen.scheme->input_activations)
      fail("target '", chosen.target, "' quantizes the input of ", module.name,
           ", an embedding; expected weights only");
    const auto [place, is_new] = groups_.try_emplace(chosen.scheme, plan_.groups.size());
    if (is_new) plan_.groups.push_back(*chosen.scheme);
    plan_.linears.push_back({.module = module.name,
                             .layer = module.layer,
                             .group = place->second,
                             .is_embedding = is_embedding});
    quantized_.insert(module.name);
    classes_.insert(module.class_name);
  }

  /// false: the module keeps its 16 bits, as the scheme or its kind wants.
  static bool is_quantizable(const ModuleName& module, const Chosen& chosen) {
    const auto refuse = [&](std::string_view reason) {
      fail("target '", chosen.target, "' matches ", module.name, reason);
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
    if (module.class_name == "Conv1D")
      refuse(", a Conv1D; engines load FP8 weights of Linears, whose rows are outputs");
    if (module.role == Role::kPositionEmbedding)
      refuse(", a table of positions; engines keep it in 16 bits");
    return true;
  }

  /// Of the classes that are quantized, those that are not.
  void list_unquantized() {
    std::vector<std::string> classes;
    for (const ModuleName& module : modules_)
      if (classes_.contains(module.class_name) &&
          std::ranges::find(classes, module.class_name) == classes.end())
        classes.push_back(module.class_name);
    for (const std::string& class_name : classes)
      for (const ModuleName& module : modules_)
        if (module.class_name == class_name && !quantized_.contains(module.name))
          plan_.unquantized.push_back(module.name);
  }

  /// All of a layer's stacked experts get tensors of their own where one of them does, as
  /// llm-compressor splits them.
  void plan_split() {
    std::set<int64_t> layers;
    for (const ModuleName& module : modules_)
      if (module.is_slice && quantized_.contains(module.name)) layers.insert(module.layer);
    if (layers.empty()) return;
    for (const ExpectedTensor& tensor : expected_tensors(config_))
      if (layers.contains(tensor.layer))
        for (ExpertTensor& one : split_into_experts(tensor, config_))
          plan_.split.push_back({.name = std::move(one.name), .slice = std::move(one.slice)});
  }

  void plan_tied() {
    if (!config_.tie_word_embeddings) return;
    for (const ModuleName& module : modules_) {
      if (module.role == Role::kEmbedding) plan_.tied_embedding = module.name;
      if (module.role == Role::kLmHead) plan_.tied_head = module.name;
    }
    const auto group_of = [&](const std::string& module) {
      const auto found = std::ranges::find(plan_.linears, module, &PlannedLinear::module);
      return found == plan_.linears.end() ? std::optional<size_t>() : found->group;
    };
    plan_.unties_embedding = group_of(plan_.tied_embedding) != group_of(plan_.tied_head);
  }

  /// A group without weights whose inputs are quantized is for attention modules.
  static bool is_for_attention(const QuantScheme& scheme) {
    return !scheme.weights && scheme.input_activations;
  }

  bool quantizes_attention() const {
    return std::ranges::any_of(recipe_.modifiers, [](const Modifier& modifier) {
      return modifier.kv_cache_scheme.has_value() ||
             std::ranges::any_of(modifier.config_groups,
                                 [](const auto& group) { return is_for_attention(group.second); });
    });
  }

  void plan_attention() {
    for (const ModuleName& module : modules_) {
      if (!is_attention(module)) continue;
      PlannedAttention planned{
          .module = module.name, .layer = module.layer, .ignored = true, .kv = {}, .q = {}};
      for (const Modifier& modifier : recipe_.modifiers)
        if (modifier.kv_cache_scheme && !is_ignored(modifier, module)) {
          planned.kv = *modifier.kv_cache_scheme;
          planned.ignored = false;
        }
      const Chosen chosen = choose(module);
      if (chosen.scheme && is_for_attention(*chosen.scheme)) {
        planned.kv = *chosen.scheme->input_activations;
        planned.q = planned.kv;
        planned.ignored = false;
      }
      plan_.attention.push_back(std::move(planned));
    }
    check_attention();
  }

  /// Engines read one scheme for all layers.
  void check_attention() {
    const auto first = std::ranges::find(plan_.attention, false, &PlannedAttention::ignored);
    if (first == plan_.attention.end()) fail("ignore leaves no attention module to calibrate");
    for (PlannedAttention& one : plan_.attention) {
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

  const Recipe& recipe_;
  const ModelConfig& config_;
  std::vector<ModuleName> modules_;
  std::vector<Targets> targets_;
  QuantPlan plan_;
  std::map<const QuantScheme*, size_t> groups_;
  std::set<std::string> quantized_, classes_;
};

}  // namespace

QuantPlan resolve_plan(const Recipe& recipe, const ModelConfig& config, Diagnostics&) {
  return Planner(recipe, config).plan();
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
