#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "family/architecture.h"
#include "quant/stacked_slice.h"

namespace kvcal {

constexpr int64_t kNoLayer = -1;

/// A tensor that checkpoints of a config.json hold: a resolved row of the family's table.
struct ExpectedTensor {
  const TensorRow* row = nullptr;  ///< row of the architecture's table
  int64_t layer = kNoLayer;        ///< kNoLayer: a tensor of the whole model
  int64_t index = 0;               ///< of the expert or head, where each has its own tensor
  int64_t count = 1;               ///< experts or heads that one tensor holds, its first dimension
  std::string name;
  Shape shape;
};

/// All expected tensors: the model's, then layer by layer, in the order of the tables.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);
/// Elements of all of them, counted without making the list. Throws Error for more than 64 bits
/// count.
uint64_t num_expected_elements(const ModelConfig& config);

/// Whether checkpoints hold such a tensor and the text model does not use it.
bool is_unused_tensor(std::string_view name, const ModelConfig& config);
/// Whether a tensor lies beside the layers and is no lm_head: the head of a reward model, of a
/// classifier, or a projection of embeddings. No K or V depends on it. False where the names of the
/// layers have no prefix, for then nothing tells, and of known wrappers (is_outside_text).
bool is_beside_model(std::string_view name, const ModelConfig& config);
/// Number of the tensor's layer where that does nothing, as layers that attend to an image; else
/// kNoLayer.
int64_t skipped_layer_of(std::string_view name, const ModelConfig& config);

/// Whether a tensor is of a multi-token prediction layer, which engines' models leave to the draft.
bool is_of_prediction_layer(std::string_view name, const ModelConfig& config);

/// Tensor of one expert, out of a tensor that stacks all experts.
struct ExpertTensor {
  Role role{};
  std::string name;
  Shape shape;
  StackedSlice slice;
};
/// Tensors of the experts of a stacked tensor, expert by expert; empty for any other tensor.
std::vector<ExpertTensor> split_into_experts(const ExpectedTensor& stacked,
                                             const ModelConfig& config);

/// Row ranges [begin, count] of a role inside its fused tensor of a layer.
using RowRanges = std::vector<std::pair<int64_t, int64_t>>;
RowRanges row_ranges(Role role, Role fused_role, int64_t rows, const ModelConfig& config,
                     int64_t layer);

}  // namespace kvcal
