#include "convert/stored_weights.h"

#include <algorithm>
#include <set>

#include "calib/plan/resolve_plan.h"
#include "quant/observer.h"
#include "recipe/recipe.h"
#include "stored/quantization_config.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

QuantArgs fp8_args(Strategy strategy, ArgsRole role, bool is_dynamic = false) {
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = strategy;
  args.dynamic = is_dynamic;
  if (!is_dynamic) args.observer = default_observer(role);
  return args;
}

QuantArgs weight_args(const LinearQuantization& linear) {
  QuantArgs args = fp8_args(linear.strategy, ArgsRole::kWeights);
  if (linear.strategy == Strategy::kBlock)
    args.block_structure = {linear.block_rows, linear.block_columns};
  return args;
}

/// Args of a Linear's input; nullopt: 16-bit.
std::optional<QuantArgs> input_args(const LinearQuantization& linear) {
  if (linear.input == InputQuantization::kNone) return std::nullopt;
  if (linear.input == InputQuantization::kStatic)
    return fp8_args(Strategy::kTensor, ArgsRole::kInputs);
  const bool has_groups = linear.input == InputQuantization::kDynamicGroup;
  QuantArgs args =
      fp8_args(has_groups ? Strategy::kGroup : Strategy::kToken, ArgsRole::kInputs, true);
  if (has_groups) args.group_size = linear.group;
  return args;
}

/// Name of a module in the checkpoint: for experts maybe llm-compressor's.
std::string stored_name(const ModuleSchemeMap& schemes, const std::string& module) {
  const std::string other = renamed_expert(module);
  return !schemes.contains(module) && !other.empty() ? other : module;
}

/// Modules with equal quantization.
struct Group {
  QuantScheme scheme;
  Json key;  ///< the scheme as config.json has it
  std::vector<std::string> modules = {};
  std::set<std::string> classes = {};
};

std::vector<Group> groups_of(const ModuleSchemeMap& schemes,
                             const std::vector<ModuleName>& modules) {
  std::vector<Group> groups;
  for (const ModuleName& module : modules) {
    const auto found = schemes.find(stored_name(schemes, module.name));
    if (!module.role || found == schemes.end()) continue;
    Json key = to_json(found->second);
    auto group = std::ranges::find(groups, key, &Group::key);
    if (group == groups.end())
      group = groups.insert(groups.end(), {.scheme = found->second, .key = std::move(key)});
    group->modules.push_back(module.name);
    group->classes.insert(module.class_name);
  }
  return groups;
}

/// Adds the groups to the plan: a single group targets its classes, without the ignored modules;
/// several groups target their modules.
void add_groups(std::vector<Group> groups, const std::vector<ModuleName>& modules,
                Modifier& modifier) {
  modifier.has_config_groups = !groups.empty();
  if (groups.size() == 1) {
    const Group& only = groups[0];
    const std::set<std::string_view> quantized(only.modules.begin(), only.modules.end());
    for (const ModuleName& module : modules)
      if (module.role && only.classes.contains(module.class_name) &&
          !quantized.contains(module.name))
        modifier.ignore.push_back(module.name);
    groups[0].modules.assign(only.classes.begin(), only.classes.end());
  }
  for (Group& group : groups) {
    group.scheme.targets = std::move(group.modules);
    modifier.config_groups.emplace_back("group_" + std::to_string(modifier.config_groups.size()),
                                        std::move(group.scheme));
  }
}

/// Takes the observer of written, where the other args are equal.
void take_observer(const Json* written, std::optional<QuantArgs>& args) {
  if (!written || !written->is_object() || !args) return;
  QuantArgs with = *args;
  if (const auto* observer = member(*written, "observer"); observer && observer->is_string())
    with.observer = observer->get<std::string>();
  if (const Json* settings = member(*written, "observer_kwargs")) with.observer_kwargs = *settings;
  if (sorted_keys(to_json(with)) == sorted_keys(*written)) args = std::move(with);
}

}  // namespace

QuantArgs cache_args(const Json& written, Strategy strategy, const KvFormat& format) {
  QuantArgs args = fp8_args(strategy, ArgsRole::kKvCache);
  if (format.is_int8()) args.type = QuantType::kInt;
  if (!written.is_object()) return args;
  for (const char* key : {"group_size", "block_structure", "actorder", "scale_dtype", "zp_dtype"})
    if (const Json* value = find_field(written, key); value && *value != Json(false))
      fail("key '", key, "' of kv_cache_scheme is ", value->dump(), ", expected null");
  if (const auto observer = optional_string(written, "observer"))
    args.observer = normalised_name(*observer);
  if (const Json* settings = find_field(written, "observer_kwargs"))
    args.observer_kwargs = *settings;
  make_observer(args);  // refuses an unknown observer and settings out of range
  return args;
}

ModuleSchemeMap fp8_schemes(const CheckpointQuantization& weights) {
  ModuleSchemeMap schemes;
  for (const auto& [module, linear] : weights.linears)
    schemes.emplace(module, QuantScheme{.targets = {},
                                        .weights = weight_args(linear),
                                        .input_activations = input_args(linear),
                                        .format = {}});
  return schemes;
}

QuantPlan plan_of_modules(const ModelDir& model, const ModelConfig& config,
                          const ModuleSchemeMap& schemes, const std::optional<QuantArgs>& cache,
                          const std::vector<std::string>& ignored, Diagnostics& diagnostics) {
  Modifier modifier;
  modifier.ignore = ignored;
  modifier.kv_cache_scheme = cache;
  const std::vector<ModuleName> modules = list_modules(config);
  add_groups(groups_of(schemes, modules), modules, modifier);
  const Recipe recipe{.modifiers = {std::move(modifier)}, .source = {}};
  std::vector<UnrunModule> unrun = unrun_modules(model, config);
  // Experts with llm-compressor's names are run, too.
  std::erase_if(unrun, [&](const UnrunModule& module) { return schemes.contains(module.name); });
  QuantPlan plan = resolve_plan(recipe, config, diagnostics, std::move(unrun));
  for (PlannedLinear& linear : plan.linears) linear.module = stored_name(schemes, linear.module);
  return plan;
}

void take_observers(const Json& manifest, QuantPlan& plan) {
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const auto written = [&](const char* args) {
      return member(manifest, "recipe", "config_groups", "group_" + std::to_string(i), args);
    };
    take_observer(written("weights"), plan.groups[i].weights);
    take_observer(written("input_activations"), plan.groups[i].input_activations);
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
