#include "calib/reader_targets.h"

#include <algorithm>
#include <functional>
#include <map>

#include "quant/fused_modules.h"
#include "recipe/recipe.h"

namespace kvcal {
namespace {

using TargetLists = std::vector<std::vector<std::string>>;
using Group = std::optional<size_t>;

constexpr std::string_view kLinear = "Linear";

/// Targets of all groups as readers map them: of equal targets, the last group at the first place.
class TargetMap {
 public:
  explicit TargetMap(const TargetLists& lists) {
    std::map<std::string_view, size_t> places;
    for (size_t group = 0; group < lists.size(); ++group)
      for (const std::string& target : lists[group]) {
        const auto [known, is_new] = places.emplace(target, targets_.size());
        if (is_new) targets_.push_back({target, group});
        targets_[known->second].group = group;
      }
    for (size_t place = 0; place < targets_.size(); ++place)
      if (targets_[place].name.starts_with("re:"))
        patterns_.push_back(place);
      else
        names_.emplace(targets_[place].name, place);
    sorted_ = patterns_;
    std::ranges::sort(sorted_, {}, [&](size_t place) { return targets_[place].name; });
  }

  /// Precedence: names, patterns alphabetically, classes.
  Group by_compressed_tensors(const ReadModule& module) const {
    if (const auto name = names_.find(module.name); name != names_.end())
      return targets_[name->second].group;
    for (const size_t place : sorted_)
      if (matches_target(targets_[place].name, module.name, "")) return targets_[place].group;
    return group_of(module.class_name);
  }

  /// First entry in the order of the file that equals or matches the name.
  Group first_match(const std::string& name) const {
    size_t first = targets_.size();
    if (const auto found = names_.find(name); found != names_.end()) first = found->second;
    for (const size_t place : patterns_) {
      if (place >= first) break;
      if (matches_target(targets_[place].name, name, "")) first = place;
    }
    return first < targets_.size() ? Group(targets_[first].group) : std::nullopt;
  }

  Group group_of(std::string_view target) const {
    const auto found = names_.find(target);
    return found == names_.end() ? std::nullopt : Group(targets_[found->second].group);
  }

 private:
  struct Target {
    std::string_view name;
    size_t group;
  };
  std::vector<Target> targets_;
  std::map<std::string_view, size_t> names_;
  std::vector<size_t> patterns_, sorted_;
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
