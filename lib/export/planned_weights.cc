#include "export/planned_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "quant/quant_plan.h"
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
  const TensorView& embedding = weight_of(model, plan.tied_embedding, calibration);
  changes.renamed.push_back(
      {.name = name, .source = &embedding, .shard = shard_of(model, embedding.name)});
}

void leave_out(const ModelDir& model, const QuantPlan& plan, WeightChanges& changes) {
  for (const std::string& module : plan.left_out)
    for (const char* part : {".weight", ".bias"})
      if (model.find(module + part)) changes.replaced.insert(module + part);
}

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

using Notes = std::vector<std::string>;

/// Block shape that engines have kernels for. Source: vLLM 0.32, `CompressedTensorsW8A8Fp8`.
const std::vector<int64_t> kUsualBlock{128, 128};

bool ends_with_any(std::string_view text, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings,
                             [&](std::string_view ending) { return text.ends_with(ending); });
}

bool is_in_blocks(const PlannedWeight& weight) {
  return resolved_strategy(*weight.scheme->weights) == Strategy::kBlock;
}

/// First element with the property, or nullptr.
template <class IsSo>
const PlannedWeight* find_weight(const WeightChanges& changes, const IsSo& is_so) {
  const auto it = std::ranges::find_if(changes.quantized, is_so);
  return it == changes.quantized.end() ? nullptr : &*it;
}

/// Matrices that the plan quantizes or skips, in its order.
std::vector<std::string> all_matrices(const QuantPlan& plan) {
  std::vector<std::string> names;
  for (const PlannedLinear& linear : plan.linears) names.push_back(linear.module);
  names.insert(names.end(), plan.unquantized.begin(), plan.unquantized.end());
  return names;
}

/// Notes on matrices that engines fuse and that need one scheme.
void note_fused(const QuantPlan& plan, Notes& notes) {
  std::map<std::string_view, size_t> groups;  // missing modules stay 16-bit
  for (const PlannedLinear& linear : plan.linears) groups.emplace(linear.module, linear.group);
  const auto group_of = [&](std::string_view module) {
    const auto found = groups.find(module);
    return found == groups.end() ? std::nullopt : std::optional(found->second);
  };
  for (const FusedModules& fused : fused_modules(all_matrices(plan)))
    for (const std::string& member : fused.members)
      if (group_of(member) != group_of(fused.members[0])) {
        notes.push_back(member + " and " + fused.members[0] +
                        " have different schemes; vLLM runs them as one matrix, '" + fused.name +
                        "', and refuses or misreads that: quantize them alike");
        return;
      }
}

/// Schemes of experts that vLLM supports. Source: vLLM 0.32, `CompressedTensorsW8A8Fp8MoEMethod`.
bool runs_experts(const QuantScheme& scheme) {
  const Strategy weights = resolved_strategy(*scheme.weights);
  if (!scheme.input_activations) return false;
  const Strategy inputs = resolved_strategy(*scheme.input_activations);
  return weights == Strategy::kBlock ||
         (weights == Strategy::kTensor && inputs == Strategy::kTensor) ||
         (weights == Strategy::kChannel && inputs == Strategy::kToken);
}

void note_experts(const QuantPlan& plan, Notes& notes) {
  const PlannedLinear* refused = nullptr;
  std::map<std::string, size_t> groups;  // of an expert's first matrix
  std::string mixed;
  for (const PlannedLinear& linear : plan.linears) {
    if (!is_expert(linear.module)) continue;
    if (!refused && !runs_experts(plan.groups[linear.group])) refused = &linear;
    const std::string expert = linear.module.substr(0, linear.module.rfind('.'));
    const auto [first, is_new] = groups.emplace(expert, linear.group);
    if (mixed.empty() && first->second != linear.group) mixed = expert;
  }
  for (const std::string& module : plan.unquantized)
    if (mixed.empty() && is_expert(module) && groups.contains(module.substr(0, module.rfind('.'))))
      mixed = module.substr(0, module.rfind('.'));
  if (refused)
    notes.push_back(refused->module +
                    ": vLLM 0.32 refuses experts in this form; it has them with weights and inputs "
                    "by tensor, with weights by channel and inputs by token (FP8_DYNAMIC), and in "
                    "blocks (FP8_BLOCK)");
  if (!mixed.empty())
    notes.push_back(mixed +
                    ": its matrices have different schemes; vLLM 0.32 runs an expert as one and "
                    "refuses that");
}

/// Rows of the parts before another part in an engine's fused matrix; only the last part may end
/// within a block. Source: vLLM 0.32, `validate_fp8_block_shape`, and for experts, all of whose
/// parts count, `validate_fp8_block_shape_moe`.
std::vector<int64_t> rows_before_others(const PlannedWeight& weight, const ModelDir& model,
                                        const std::set<std::string_view>& first_members) {
  static constexpr std::array<std::string_view, 4> kOfExperts{".gate_proj", ".up_proj", ".w1",
                                                              ".w3"};
  static constexpr std::array<std::string_view, 2> kQkv{".qkv_proj", ".query_key_value"};
  const std::string_view module = weight.module;
  const int64_t rows = weight.shape[0];
  if (is_expert(weight.module))
    return ends_with_any(module, kOfExperts) ? std::vector{rows} : std::vector<int64_t>();
  if (first_members.contains(module)) return {rows};
  if (module.ends_with(".gate_up_proj")) return {rows / 2};
  if (!ends_with_any(module, kQkv)) return {};
  // The queries' rows equal the columns of the output matrix.
  const std::string parent = weight.module.substr(0, module.rfind('.'));
  for (const char* behind : {".o_proj.weight", ".dense.weight"})
    if (const TensorView* output = model.find(parent + behind); output && output->shape.rank() == 2)
      return {output->shape[1], (rows - output->shape[1]) / 2};
  return {};
}

void note_blocks(const WeightChanges& changes, const ExportInput& input, Notes& notes) {
  const PlannedWeight* odd = find_weight(changes, [](const PlannedWeight& weight) {
    return is_in_blocks(weight) && weight.scheme->weights->block_structure != kUsualBlock;
  });
  if (odd) notes.push_back(odd->module + ": engines have kernels for blocks of [128, 128] only");
  const auto fused = fused_modules(all_matrices(input.calibration.plan));
  std::set<std::string_view> first_members;
  for (const FusedModules& one : fused)
    first_members.insert(one.members.begin(), one.members.end() - 1);
  for (const PlannedWeight& weight : changes.quantized) {
    if (!is_in_blocks(weight)) continue;
    const int64_t block = weight.scheme->weights->block_structure->at(0);
    for (const int64_t rows : rows_before_others(weight, input.model, first_members))
      if (rows % block != 0) {
        const std::string part = rows == weight.shape[0] ? "its " : "a part of it has ";
        notes.push_back(weight.module + ": " + part + counted(rows, "row") +
                        (rows == weight.shape[0] ? "" : ", which") +
                        " end within a block, and vLLM refuses that where it puts several "
                        "matrices together; choose FP8_DYNAMIC");
        return;
      }
  }
}

void note_left_out(const QuantPlan& plan, Notes& notes) {
  const std::vector<std::string>& modules = plan.left_out;
  if (modules.empty()) return;
  notes.push_back(
      "what engines would run as one with FP8 weights, and the model does not run, is left out: " +
      std::to_string(modules.size()) + (modules.size() == 1 ? " matrix (" : " matrices (") +
      modules.front() + (modules.size() == 1 ? ")" : ", ...)"));
}

void note_kinds(const QuantPlan& plan, Notes& notes) {
  if (const size_t count = plan.unrun.size(); count > 0)
    notes.push_back("what of the checkpoint the text model does not run stays in 16 bits: " +
                    std::to_string(count) + (count == 1 ? " matrix (" : " matrices (") +
                    plan.unrun.front() + (count == 1 ? ")" : ", ...)"));
  if (std::ranges::any_of(plan.linears, &PlannedLinear::is_embedding))
    notes.emplace_back("vLLM 0.32 refuses FP8 embeddings; transformers loads them");
  if (std::ranges::any_of(plan.linears, [&](const PlannedLinear& linear) {
        return !linear.is_embedding && !is_expert(linear.module) &&
               !plan.groups[linear.group].input_activations;
      }))
    notes.emplace_back(
        "vLLM 0.32 runs FP8 weights with 16-bit inputs on CUDA and XPU, not on CPUs and ROCm");
}

/// Tested with transformers 5.17 on granitemoe, granitemoehybrid and gpt_oss, whose loaders only
/// find stacked tensors, and with vLLM 0.32 on gpt_oss (KeyError '….experts.0.w2_bias').
void note_split_experts(const WeightChanges& changes, const QuantPlan& plan, Notes& notes) {
  const PlannedWeight* split =
      find_weight(changes, [](const PlannedWeight& weight) { return weight.slice != nullptr; });
  if (!split) return;
  notes.push_back(split->module +
                  ": transformers 5.17 loads experts of this family from stacked tensors only, and "
                  "runs with random ones in their place");
  const auto bias = std::ranges::find_if(
      plan.split, [](const SplitTensor& one) { return one.name.ends_with(".bias"); });
  if (bias != plan.split.end())
    notes.push_back(bias->name + ": the loader of vLLM 0.32 stops at biases of split experts");
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
      const StackedSlice& slice = found->second->slice;
      const TensorView& source = stacked_of(model, slice);
      changes.quantized.push_back({.module = linear.module,
                                   .scheme = &scheme,
                                   .source = &source,
                                   .shape = shape_of(slice, source.shape),
                                   .slice = &slice,
                                   .shard = shard_of(model, source.name)});
      changes.replaced.insert(slice.tensor);
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
  leave_out(model, plan, changes);
  for (const auto& [name, planned] : slices) {
    const TensorView& source = stacked_of(model, planned->slice);
    shape_of(planned->slice, source.shape);  // refuses a slice that does not fit
    changes.renamed.push_back({.name = planned->name,
                               .source = &source,
                               .slice = &planned->slice,
                               .shard = shard_of(model, source.name)});
    changes.replaced.insert(planned->slice.tensor);
  }
  return changes;
}

void check_weights(const ExportInput& input, const WeightScaleNames& format) {
  const WeightChanges changes = weight_changes(input.model, input.calibration);
  std::vector<std::string> names;
  for (const PlannedWeight& weight : changes.quantized) {
    in_context(weight.weight_name(), [&] { scale_grid(*weight.scheme->weights, weight.shape); });
    const Strategy strategy = resolved_strategy(*weight.scheme->weights);
    names.push_back(format.scale_name(weight.module, strategy));
    names.push_back(weight.input_scale_name());
    if (!weight.tied_module.empty())
      names.push_back(format.scale_name(weight.tied_module, strategy));
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

std::optional<std::string> odd_groups_note(const PlannedWeight& weight,
                                           const std::optional<QuantArgs>& inputs) {
  const int64_t group = inputs ? inputs->group_size.value_or(0) : 0;
  if (group <= 0 || weight.shape[1] % group == 0) return std::nullopt;
  return weight.module + ": its " + std::to_string(weight.shape[1]) +
         " inputs are not whole groups of " + std::to_string(group) +
         ", which neither transformers 5.17 nor vLLM 0.32 runs; choose FP8_DYNAMIC";
}

std::vector<std::string> weight_notes(const ExportInput& input) {
  Notes notes;
  const QuantPlan& plan = input.calibration.plan;
  if (!plan.quantizes_weights()) return notes;
  const WeightChanges changes = weight_changes(input.model, input.calibration);
  note_kinds(plan, notes);
  note_left_out(plan, notes);
  if (const PlannedWeight* gate = find_weight(changes, [](const PlannedWeight& weight) {
        return weight.module.ends_with(".shared_expert_gate");
      }))
    notes.push_back(gate->module +
                    ": vLLM keeps this gate in 16 bits and does not load its codes; "
                    "put 're:.*shared_expert_gate' in ignore");
  note_split_experts(changes, plan, notes);
  note_fused(plan, notes);
  note_experts(plan, notes);
  note_blocks(changes, input, notes);
  for (const PlannedWeight& weight : changes.quantized)
    if (auto note = odd_groups_note(weight, weight.scheme->input_activations)) {
      notes.push_back(*std::move(note));
      break;
    }
  return notes;
}

}  // namespace kvcal
