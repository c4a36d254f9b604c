#include "calib/module_patterns.h"

#include <algorithm>

#include "core/registry.h"

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
  for (const auto& [target, scheme] : schemes_)
    if (is_meant(target.second, *scheme) && matches_name(target.second, module))
      return {&modifier_, scheme, target.second, true};
  for (const auto& [target, scheme] : schemes_)
    if (is_meant(target.second, *scheme) && target.second == module.class_name)
      return {&modifier_, scheme, target.second, false};
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

}  // namespace kvcal
