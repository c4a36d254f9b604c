#include "calib/plan/module_targets.h"

#include <algorithm>
#include <functional>
#include <map>

#include "core/registry.h"
#include "quant/quant_plan.h"
#include "recipe/recipe.h"

namespace kvcal {
namespace {

bool matches_name(const std::string& pattern, const ModuleName& module) {
  return matches_target(pattern, module.name, "") ||
         (!module.alias.empty() && matches_target(pattern, module.alias, ""));
}

/// transformers 5 names modules beside the text model below "model.".
bool matches(const std::string& pattern, const UnrunModule& module) {
  return (!module.class_name.empty() && pattern == module.class_name) ||
         matches_target(pattern, module.name, "") ||
         matches_target(pattern, "model." + module.name, "");
}

bool matches_matrix(const std::string& pattern, const std::vector<ModuleName>& modules) {
  return std::ranges::any_of(modules, [&](const ModuleName& module) {
    return !is_attention(module) && matches(pattern, module);
  });
}

void require_match(const std::string& pattern, const std::string& place_and_pattern,
                   const NamedModules& modules) {
  const auto is_match = [&](const auto& module) { return matches(pattern, module); };
  if (std::ranges::any_of(modules.run, is_match) || std::ranges::any_of(modules.unrun, is_match))
    return;
  std::vector<std::string> names;
  for (const ModuleName& module : modules.run) names.push_back(module.name);
  for (const UnrunModule& module : modules.unrun) names.push_back(module.name);
  fail(place_and_pattern, " matches no module of the model", did_you_mean(pattern, names));
}

/// Throws Error for a target that matches only attention modules: a group for weights does not
/// apply to them.
void refuse_attention_alone(const std::string& target, const Modifier& modifier,
                            const NamedModules& modules) {
  const auto attention = std::ranges::find_if(modules.run, [&](const ModuleName& module) {
    return is_attention(module) && matches(target, module);
  });
  if (attention == modules.run.end() || matches_matrix(target, modules.run)) return;
  fail(target_text(modifier, target), " matches attention modules alone (", attention->name,
       "), and its group is for weights; a group for attention has input_activations alone");
}

std::string text_at(const std::map<std::string, RecipePlace, std::less<>>& places,
                    std::string_view list, const std::string& pattern) {
  const auto place = places.find(pattern);
  return (place == places.end() ? "" : text_of(place->second)) + std::string(list) + " '" +
         pattern + "'";
}

using TargetLists = std::vector<std::vector<std::string>>;
using Group = std::optional<size_t>;

constexpr std::string_view kLinear = "Linear";

/// Targets of all groups as readers map them: of equal targets, the last group at the first place.
class TargetMap {
 public:
  explicit TargetMap(const TargetLists& lists) {
    for (size_t group = 0; group < lists.size(); ++group)
      for (const std::string& target : lists[group]) {
        const auto [known, is_new] = places_.emplace(target, targets_.size());
        if (is_new) targets_.push_back({target, group});
        if (is_new && target.starts_with(kPattern)) patterns_.push_back(known->second);
        targets_[known->second].group = group;
      }
  }

  /// Precedence: names, patterns alphabetically, classes.
  Group by_compressed_tensors(const ReadModule& module) const {
    if (const Group own = group_of(module.name)) return own;
    for (auto pattern = places_.lower_bound(kPattern);
         pattern != places_.end() && pattern->first.starts_with(kPattern); ++pattern)
      if (matches_target(pattern->first, module.name, "")) return targets_[pattern->second].group;
    return group_of(module.class_name);
  }

  /// First entry in the order of the file that equals or matches the name.
  Group first_match(const std::string& name) const {
    size_t first = targets_.size();
    if (const auto found = places_.find(name); found != places_.end()) first = found->second;
    for (const size_t place : patterns_) {
      if (place >= first) break;
      if (matches_target(targets_[place].name, name, "")) first = place;
    }
    return first < targets_.size() ? Group(targets_[first].group) : std::nullopt;
  }

  Group group_of(std::string_view target) const {
    const auto found = places_.find(target);
    return found == places_.end() ? std::nullopt : Group(targets_[found->second].group);
  }

 private:
  static constexpr std::string_view kPattern = "re:";
  struct Target {
    std::string_view name;
    size_t group;
  };
  std::vector<Target> targets_;
  std::map<std::string_view, size_t> places_;  ///< of targets, by name
  std::vector<size_t> patterns_;               ///< ascending
};

/// Modules that vLLM loads with one scheme: one module, or several that it fuses.
struct Unit {
  std::string name;
  std::vector<const ReadModule*> modules;
};

std::vector<Unit> units_of(const std::vector<ReadModule>& modules) {
  std::map<std::string_view, const ReadModule*> by_name;
  std::vector<std::string> linears;
  for (const ReadModule& module : modules) {
    by_name.emplace(module.name, &module);
    if (module.class_name == kLinear) linears.push_back(module.name);
  }
  std::vector<Unit> units;
  for (FusedModules& fused : fused_modules(linears)) {
    Unit unit{.name = std::move(fused.name), .modules = {}};
    for (const std::string& member : fused.members)
      if (const auto node = by_name.extract(member)) unit.modules.push_back(node.mapped());
    units.push_back(std::move(unit));
  }
  for (const ReadModule& module : modules)
    if (by_name.contains(module.name)) units.push_back({module.name, {&module}});
  return units;
}

/// "Linear" is part of vLLM's class names for Linears and Conv1D, and also applies to experts; its
/// lm_head has another class.
bool is_linear_in_vllm(const ReadModule& module) {
  return (module.class_name == kLinear || module.class_name == "Conv1D") && !module.is_head;
}

Group by_vllm(const Unit& unit, const TargetMap& targets) {
  if (const Group own = targets.first_match(unit.name)) return own;
  if (unit.modules.size() > 1) {
    const Group first = targets.first_match(unit.modules[0]->name);
    if (std::ranges::all_of(unit.modules, [&](const ReadModule* module) {
          return targets.first_match(module->name).has_value();
        }))
      return first;
  }
  return is_linear_in_vllm(*unit.modules[0]) ? targets.group_of(kLinear) : std::nullopt;
}

/// Modules that some reader would assign to another group.
std::vector<const ReadModule*> misread(const TargetLists& lists,
                                       const std::vector<ReadModule>& modules,
                                       const std::vector<Unit>& units) {
  const TargetMap targets(lists);
  std::vector<const ReadModule*> wrong;
  for (const ReadModule& module : modules)
    if (!module.is_ignored && module.class_name != "Conv1D" &&
        targets.by_compressed_tensors(module) != module.group)
      wrong.push_back(&module);
  for (const Unit& unit : units) {
    const ReadModule& first = *unit.modules[0];
    const bool is_alike = std::ranges::all_of(unit.modules, [&](const ReadModule* module) {
      return module->group == first.group && module->is_ignored == first.is_ignored;
    });
    // vLLM refuses other modules for any targets, and embeddings too.
    const bool is_loaded = is_alike && !first.is_ignored && first.class_name != "Embedding";
    if (is_loaded && by_vllm(unit, targets) != first.group)
      wrong.insert(wrong.end(), unit.modules.begin(), unit.modules.end());
  }
  std::ranges::sort(wrong);  // by address, which is their order
  wrong.erase(std::unique(wrong.begin(), wrong.end()), wrong.end());
  return wrong;
}

bool has_equal_targets(const TargetLists& lists) {
  std::vector<std::string_view> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::ranges::sort(all);
  return std::ranges::adjacent_find(all) != all.end();
}

}  // namespace

bool matches(const std::string& pattern, const ModuleName& module) {
  return pattern == module.class_name || matches_name(pattern, module);
}

bool is_ignored(const Modifier& modifier, const ModuleName& module) {
  return std::ranges::any_of(modifier.ignore,
                             [&](const std::string& pattern) { return matches(pattern, module); });
}

std::string target_text(const Modifier& modifier, const std::string& target) {
  return text_at(modifier.target_places, "target", target);
}

void check_patterns(const Recipe& recipe, const NamedModules& modules) {
  for (const Modifier& modifier : recipe.modifiers) {
    for (const auto& [name, scheme] : modifier.config_groups)
      for (const std::string& target : scheme.targets) {
        require_match(target, target_text(modifier, target), modules);
        if (scheme.weights) refuse_attention_alone(target, modifier, modules);
      }
    for (const std::string& pattern : modifier.ignore)
      require_match(pattern, text_at(modifier.ignore_places, "ignore", pattern), modules);
  }
}

Targets::Targets(const Modifier& modifier) : modifier_(modifier) {
  for (const auto& [name, scheme] : modifier.config_groups)
    for (const std::string& target : scheme.targets)
      schemes_[{target.starts_with("re:"), target}] = &scheme;
}

template <class IsMeant>
Chosen Targets::first_match(const ModuleName& module, const IsMeant& is_meant) const {
  if (is_ignored(modifier_, module)) return {};
  for (const bool by_name : {true, false})
    for (const auto& [target, scheme] : schemes_)
      if (is_meant(target.second, *scheme) &&
          (by_name ? matches_name(target.second, module) : target.second == module.class_name))
        return {&modifier_, scheme, target.second, by_name};
  return {};
}

Chosen Targets::choose(const ModuleName& module) const {
  return first_match(module, [](const std::string&, const QuantScheme&) { return true; });
}

Chosen Targets::choose_for_attention(const ModuleName& module,
                                     const std::vector<ModuleName>& modules) const {
  return first_match(module, [&](const std::string& target, const QuantScheme& scheme) {
    return !scheme.weights && !matches_matrix(target, modules);
  });
}

TargetLists readable_targets(const std::vector<QuantScheme>& groups,
                             const std::vector<ReadModule>& modules) {
  TargetLists written;
  for (const QuantScheme& group : groups) written.push_back(group.targets);
  const std::vector<Unit> units = units_of(modules);
  if (!has_equal_targets(written)) {
    const std::vector<const ReadModule*> wrong = misread(written, modules, units);
    if (wrong.empty()) return written;
    TargetLists with_names = written;
    for (const ReadModule* module : wrong)
      if (module->group &&
          std::ranges::find(written[*module->group], module->name) == written[*module->group].end())
        with_names[*module->group].push_back(module->name);
    if (misread(with_names, modules, units).empty()) return with_names;
  }
  TargetLists names(groups.size());
  for (const ReadModule& module : modules)
    if (module.group) names[*module.group].push_back(module.name);
  return names;
}

}  // namespace kvcal
