#include "calib/attention_plan.h"

#include <algorithm>

namespace kvcal {
namespace {

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

}  // namespace

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

}  // namespace kvcal
