#include "convert/stored_weights.h"

#include <algorithm>
#include <set>

#include "calib/quant_plan.h"
#include "recipe/recipe.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

Json fp8_args(Strategy strategy) {
  return {{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", name_of(strategy)}};
}

Json weight_args(const LinearQuantization& linear) {
  Json args = fp8_args(linear.strategy);
  if (linear.strategy == Strategy::kBlock)
    args["block_structure"] = {linear.block_rows, linear.block_columns};
  return args;
}

/// null: the input keeps 16 bits.
Json input_args(const LinearQuantization& linear) {
  switch (linear.input) {
    case InputQuantization::kNone:
      return nullptr;
    case InputQuantization::kStatic: {
      Json args = fp8_args(Strategy::kTensor);
      args["dynamic"] = false;
      return args;
    }
    case InputQuantization::kDynamicToken: {
      Json args = fp8_args(Strategy::kToken);
      args["dynamic"] = true;
      return args;
    }
    case InputQuantization::kDynamicGroup: {
      Json args = fp8_args(Strategy::kGroup);
      args["dynamic"] = true;
      args["group_size"] = linear.group;
      return args;
    }
  }
  return nullptr;
}

/// Modules that are quantized alike.
struct Group {
  Json scheme;
  std::vector<std::string> modules;
  std::set<std::string> classes;
};

/// The name that the checkpoint has for a module: experts' may be llm-compressor's.
std::string stored_name(const CheckpointQuantization& weights, const std::string& module) {
  const std::string other = renamed_expert(module);
  return !weights.linears.contains(module) && !other.empty() ? other : module;
}

std::vector<Group> groups_of(const CheckpointQuantization& weights,
                             const std::vector<ModuleName>& modules) {
  std::vector<Group> groups;
  for (const ModuleName& module : modules) {
    const auto found = weights.linears.find(stored_name(weights, module.name));
    if (!module.role || found == weights.linears.end()) continue;
    Json scheme = {{"weights", weight_args(found->second)}};
    if (Json inputs = input_args(found->second); !inputs.is_null())
      scheme["input_activations"] = std::move(inputs);
    auto group = std::ranges::find(groups, scheme, &Group::scheme);
    if (group == groups.end())
      group =
          groups.insert(groups.end(), {.scheme = std::move(scheme), .modules = {}, .classes = {}});
    group->modules.push_back(module.name);
    group->classes.insert(module.class_name);
  }
  return groups;
}

/// One group is everything of its classes but what ignore names; of several each has its modules.
Json config_groups(const std::vector<Group>& groups, const std::vector<ModuleName>& modules,
                   Json& ignore) {
  Json json = Json::object();
  for (const Group& group : groups) {
    Json& own = json["group_" + std::to_string(json.size())] = group.scheme;
    own["targets"] = groups.size() == 1 ? Json(group.classes) : Json(group.modules);
  }
  if (groups.size() != 1) return json;
  const std::set<std::string_view> quantized(groups[0].modules.begin(), groups[0].modules.end());
  for (const ModuleName& module : modules)
    if (module.role && groups[0].classes.contains(module.class_name) &&
        !quantized.contains(module.name))
      ignore.push_back(module.name);
  return json;
}

/// The keys of a scheme that a recipe takes; the others are null in what compressed-tensors saves.
Json written_keys(const Json& scheme) {
  Json keys = Json::object();
  for (const auto& [key, value] : scheme.items())
    if (!value.is_null() && !(value.is_object() && value.empty())) keys[key] = value;
  return keys;
}

/// For parse_recipe.
std::string recipe_text(const ModelConfig& config, const CheckpointQuantization& weights,
                        const Json& scheme, const std::vector<std::string>& ignored) {
  const std::vector<ModuleName> modules = list_modules(config);
  Json modifier = Json::object(), ignore = ignored;
  const std::vector<Group> groups = groups_of(weights, modules);
  if (!groups.empty()) modifier["config_groups"] = config_groups(groups, modules, ignore);
  if (!scheme.is_null()) modifier["kv_cache_scheme"] = written_keys(scheme);
  if (!ignore.empty()) modifier["ignore"] = ignore;
  return Json{{"quant_stage", {{"quant_modifiers", {{"QuantizationModifier", modifier}}}}}}.dump();
}

}  // namespace

QuantPlan plan_of_checkpoint(const ModelDir& model, const ModelConfig& config,
                             const CheckpointQuantization& weights, const Json& scheme,
                             const std::vector<std::string>& ignored, Diagnostics& diagnostics) {
  const Recipe recipe = parse_recipe(recipe_text(config, weights, scheme, ignored));
  std::vector<UnrunModule> unrun = unrun_modules(model, config);
  // Experts by llm-compressor's names are run, too.
  std::erase_if(unrun,
                [&](const UnrunModule& module) { return weights.linears.contains(module.name); });
  QuantPlan plan = resolve_plan(recipe, config, diagnostics, std::move(unrun));
  for (PlannedLinear& linear : plan.linears) linear.module = stored_name(weights, linear.module);
  return plan;
}

namespace {

/// Whether written is args but for the observer; then the observer is taken from it.
void take_observer(const Json* written, std::optional<QuantArgs>& args) {
  if (!written || !written->is_object() || !args) return;
  QuantArgs with = *args;
  if (const Json* observer = find_field(*written, "observer"); observer && observer->is_string())
    with.observer = observer->get<std::string>();
  if (const Json* settings = find_field(*written, "observer_kwargs"))
    with.observer_kwargs = *settings;
  if (sorted_keys(to_json(with)) == sorted_keys(*written)) args = std::move(with);
}

}  // namespace

void take_observers(const Json& manifest, QuantPlan& plan) {
  const Json* recipe = manifest.is_object() ? find_field(manifest, "recipe") : nullptr;
  const Json* groups =
      recipe && recipe->is_object() ? find_field(*recipe, "config_groups") : nullptr;
  if (!groups || !groups->is_object()) return;
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const Json* written = find_field(*groups, "group_" + std::to_string(i));
    if (!written || !written->is_object()) continue;
    take_observer(find_field(*written, "weights"), plan.groups[i].weights);
    take_observer(find_field(*written, "input_activations"), plan.groups[i].input_activations);
  }
}

void add_stored_weights(const CheckpointQuantization& weights, Calibration& calibration) {
  for (const PlannedLinear& planned : calibration.plan.linears) {
    const auto found = weights.linears.find(planned.module);
    if (found == weights.linears.end())
      fail(planned.module, ": the checkpoint has no FP8 weight of it");
    std::vector<Scale>& scales = calibration.stored_weights[planned.module];
    for (const float value : as_float32(std::span(&found->second.weight_scale, 1)))
      scales.push_back({value});
    if (found->second.input == InputQuantization::kStatic)
      calibration.linears.push_back(
          {.module = planned.module, .input_amax = {}, .input_scale = {found->second.input_scale}});
  }
}

}  // namespace kvcal
