#include "export/planned_weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "quant/weight_scales.h"

namespace kvcal {
namespace {

const PlannedLinear* find_module(const QuantPlan& plan, const std::string& module) {
  const auto it = std::ranges::find(plan.linears, module, &PlannedLinear::module);
  return it == plan.linears.end() ? nullptr : &*it;
}

/// Slices of stacked tensors by their new names, except names that the model already has.
using Slices = std::map<std::string_view, const SplitTensor*>;

Slices slices_of(const ModelDir& model, const QuantPlan& plan) {
  Slices slices;
  for (const SplitTensor& one : plan.split)
    if (!model.find(one.name)) slices.emplace(one.name, &one);
  return slices;
}

const TensorView& stacked_of(const ModelDir& model, const StackedSlice& slice) {
  const TensorView* stacked = model.find(slice.tensor);
  if (!stacked) fail(model.path().string(), ": has no tensor ", slice.tensor, " to split");
  if (!is_float(stacked->dtype))
    fail(slice.tensor, " is ", stacked->dtype, ", expected F16, BF16 or F32");
  return *stacked;
}

const TensorView& weight_of(const ModelDir& model, const std::string& module,
                            const Calibration& calibration) {
  const std::string name = module + ".weight";
  const TensorView* weight = model.find(name);
  if (!weight) fail(model.path().string(), ": has no tensor ", name, " to quantize");
  if (calibration.stored_weights.contains(module)) {
    KVCAL_CHECK(weight->dtype == DType::kF8E4M3);
    return *weight;
  }
  if (!is_float(weight->dtype) || weight->shape.rank() != 2)
    fail(name, " is ", weight->dtype, " ", weight->shape,
         ", expected a matrix of F16, BF16 or F32");
  return *weight;
}

/// Adds the changes for the head of a tied model, whose tensor is the embedding's.
void change_tied_head(const ModelDir& model, const Calibration& calibration,
                      WeightChanges& changes) {
  const QuantPlan& plan = calibration.plan;
  const std::string name = plan.tied_head + ".weight";
  const bool is_planned =
      find_module(plan, plan.tied_head) || find_module(plan, plan.tied_embedding);
  // The file may hold the head anyway; loaders use the embedding.
  if (is_planned && model.find(name)) changes.replaced.insert(name);
  if (!plan.unties_embedding || find_module(plan, plan.tied_head)) return;
  changes.untied_head = &weight_of(model, plan.tied_embedding, calibration);
  changes.untied_head_name = name;
  changes.untied_shard = shard_of(model, changes.untied_head->name);
}

void add_slice(const ModelDir& model, const std::string& module, const QuantScheme& scheme,
               const StackedSlice& slice, WeightChanges& changes) {
  const TensorView& source = stacked_of(model, slice);
  changes.quantized.push_back({.module = module,
                               .scheme = &scheme,
                               .source = &source,
                               .shape = shape_of(slice, source.shape),
                               .slice = &slice,
                               .shard = shard_of(model, source.name)});
  changes.replaced.insert(std::string(source.name));
}

void add_split_copy(const ModelDir& model, const SplitTensor& planned, WeightChanges& changes) {
  const TensorView& source = stacked_of(model, planned.slice);
  changes.split.push_back({.planned = &planned,
                           .source = &source,
                           .shape = shape_of(planned.slice, source.shape),
                           .shard = shard_of(model, source.name)});
  changes.replaced.insert(std::string(source.name));
}

}  // namespace

WeightChanges weight_changes(const ModelDir& model, const Calibration& calibration) {
  const QuantPlan& plan = calibration.plan;
  // The plan names the tensor that an untied module is made from.
  KVCAL_CHECK(!plan.unties_embedding || !plan.tied_head.empty());
  WeightChanges changes;
  Slices slices = slices_of(model, plan);
  for (const PlannedLinear& linear : plan.linears) {
    const QuantScheme& scheme = plan.groups.at(linear.group);
    KVCAL_CHECK(scheme.weights.has_value());
    if (const auto found = slices.find(linear.module + ".weight"); found != slices.end()) {
      add_slice(model, linear.module, scheme, found->second->slice, changes);
      slices.erase(found);
      continue;
    }
    const bool is_tied_head = !plan.tied_head.empty() && linear.module == plan.tied_head;
    const TensorView& source =
        weight_of(model, is_tied_head ? plan.tied_embedding : linear.module, calibration);
    // With equal quantization, both stay one tensor.
    if (is_tied_head && !plan.unties_embedding) continue;
    changes.quantized.push_back({.module = linear.module,
                                 .scheme = &scheme,
                                 .source = &source,
                                 .shape = source.shape,
                                 .shard = shard_of(model, source.name)});
    if (!is_tied_head) changes.replaced.insert(std::string(source.name));
    if (linear.module == plan.tied_embedding && find_module(plan, plan.tied_head) &&
        !plan.unties_embedding)
      changes.quantized.back().tied_module = plan.tied_head;
  }
  if (!plan.tied_head.empty()) change_tied_head(model, calibration, changes);
  for (const auto& [name, planned] : slices) add_split_copy(model, *planned, changes);
  return changes;
}

namespace {

void check_input_scales_fit(const WeightChanges& changes, const Calibration& calibration) {
  std::map<std::string_view, const TensorView*> sources;
  for (const PlannedWeight& weight : changes.quantized) sources[weight.module] = weight.source;
  for (const LinearCalibration& linear : calibration.linears) {
    const DType dtype = sources.at(linear.module)->dtype;
    if (!std::isfinite(input_scale_in(dtype, linear.input_scale).value))
      fail(linear.module, ".input_scale: ", linear.input_scale.value, " is out of the range of ",
           dtype, "; write scales as float32 (--scale-dtype float32)");
  }
}

}  // namespace

void check_weights(const ExportInput& input, const WeightForm& form) {
  const WeightChanges changes = weight_changes(input.model, input.calibration);
  std::vector<std::string> names;
  for (const PlannedWeight& weight : changes.quantized) {
    in_context(weight.weight_name(), [&] { scale_grid(*weight.scheme->weights, weight.shape); });
    const Strategy strategy = resolved_strategy(*weight.scheme->weights);
    names.push_back(form.scale_name(weight.module, strategy));
    names.push_back(weight.input_scale_name());
    if (!weight.tied_module.empty()) names.push_back(form.scale_name(weight.tied_module, strategy));
  }
  check_tensors_are_new(input.model, names);
  if (input.scale_in_model_dtype) check_input_scales_fit(changes, input.calibration);
}

Scale input_scale_in(DType dtype, Scale scale) {
  const float rounded = rounded_to(dtype, scale.value);
  return {rounded == 0.0f ? zero_scale(dtype, ScaleArithmetic::kModelDtype) : rounded};
}

void untie(Json& config) {
  constexpr const char* kKey = "tie_word_embeddings";
  config[kKey] = false;
  // In a multimodal model both levels count, by the key or by its default.
  const auto text_config = config.find("text_config");
  if (text_config != config.end() && text_config->is_object()) (*text_config)[kKey] = false;
}

size_t shard_of(const ModelDir& model, std::string_view tensor) {
  const auto& shards = model.shards();
  const auto it = std::ranges::find_if(
      shards, [&](const SafetensorsFile& shard) { return shard.find(tensor) != nullptr; });
  KVCAL_CHECK(it != shards.end());
  return static_cast<size_t>(it - shards.begin());
}

}  // namespace kvcal
