#include "export/weight_notes.h"

#include <algorithm>
#include <array>

#include "export/planned_weights.h"

namespace kvcal {
namespace {

/// What engines have kernels for. Source: vLLM 0.32, `CompressedTensorsW8A8Fp8`.
const std::vector<int64_t> kUsualBlock{128, 128};

/// The matrices that engines put in front of another one, and the last matrix of a group of them
/// may end within a block. Source: vLLM 0.32, `validate_fp8_block_shape`; of experts all are
/// checked.
bool is_merged(std::string_view module) {
  static constexpr std::array<std::string_view, 3> kFirst{".q_proj", ".k_proj", ".gate_proj"};
  static constexpr std::array<std::string_view, 3> kOfExperts{".up_proj", ".w1", ".w3"};
  const auto ends = [&](std::string_view suffix) { return module.ends_with(suffix); };
  if (std::ranges::any_of(kFirst, ends)) return true;
  return module.find(".experts.") != std::string_view::npos &&
         std::ranges::any_of(kOfExperts, ends);
}

/// The first that is so, or nullptr.
template <class IsSo>
const PlannedWeight* find_weight(const WeightChanges& changes, const IsSo& is_so) {
  const auto it = std::ranges::find_if(changes.quantized, is_so);
  return it == changes.quantized.end() ? nullptr : &*it;
}

bool is_in_blocks(const PlannedWeight& weight) {
  return resolved_strategy(*weight.scheme->weights) == Strategy::kBlock;
}

void note_blocks(const WeightChanges& changes, std::vector<std::string>& notes) {
  const PlannedWeight* odd = find_weight(changes, [](const PlannedWeight& weight) {
    return is_in_blocks(weight) && weight.scheme->weights->block_structure != kUsualBlock;
  });
  if (odd) notes.push_back(odd->module + ": engines have kernels for blocks of [128, 128] only");
  const PlannedWeight* merged = find_weight(changes, [](const PlannedWeight& weight) {
    return is_in_blocks(weight) && is_merged(weight.module) &&
           weight.shape[0] % weight.scheme->weights->block_structure->at(0) != 0;
  });
  if (merged)
    notes.push_back(merged->module + ": its " + std::to_string(merged->shape[0]) +
                    " rows end within a block, and vLLM refuses that where it puts several "
                    "matrices together; choose FP8_DYNAMIC");
}

void note_input_groups(const WeightChanges& changes, std::vector<std::string>& notes) {
  const PlannedWeight* odd = find_weight(changes, [](const PlannedWeight& weight) {
    const auto& inputs = weight.scheme->input_activations;
    return inputs && inputs->group_size.value_or(0) > 0 &&
           weight.shape[1] % *inputs->group_size != 0;
  });
  if (odd)
    notes.push_back(odd->module + ": its " + std::to_string(odd->shape[1]) +
                    " inputs are not whole groups of " +
                    std::to_string(*odd->scheme->input_activations->group_size) +
                    ", and transformers 5.17 fails on that; choose FP8_DYNAMIC");
}

}  // namespace

std::vector<std::string> weight_notes(const ExportInput& input) {
  std::vector<std::string> notes;
  const QuantPlan& plan = input.calibration.plan;
  if (!plan.quantizes_weights()) return notes;
  const WeightChanges changes = weight_changes(input.model, plan);
  if (std::ranges::any_of(plan.linears, &PlannedLinear::is_embedding))
    notes.emplace_back("vLLM 0.32 refuses FP8 embeddings; transformers loads them");
  if (std::ranges::any_of(plan.linears, [&](const PlannedLinear& linear) {
        return !linear.is_embedding && !plan.groups[linear.group].input_activations;
      }))
    notes.emplace_back(
        "vLLM 0.32 runs FP8 weights with 16-bit inputs on CUDA and XPU, not on CPUs and ROCm");
  if (const PlannedWeight* gate = find_weight(changes, [](const PlannedWeight& weight) {
        return weight.module.ends_with(".shared_expert_gate");
      }))
    notes.push_back(gate->module +
                    ": vLLM keeps this gate in 16 bits and does not load its codes; "
                    "put 're:.*shared_expert_gate' in ignore");
  // Its loaders look for the stacked tensors alone, and leave the experts as they were made. Tried
  // with 5.17 on granitemoe, granitemoehybrid and gpt_oss.
  if (const PlannedWeight* split =
          find_weight(changes, [](const PlannedWeight& weight) { return weight.slice; }))
    notes.push_back(split->module +
                    ": transformers 5.17 loads experts of this family from stacked tensors only, "
                    "and runs with random ones in their place");
  note_blocks(changes, notes);
  note_input_groups(changes, notes);
  return notes;
}

}  // namespace kvcal
