#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "family/architecture.h"
#include "quant/stacked_slice.h"

namespace kvcal {

constexpr int64_t kNoLayer = -1;

/// A tensor that checkpoints of a config.json hold: a row of the family's table, resolved.
struct ExpectedTensor {
  const TensorRow* row = nullptr;  ///< the architecture's
  int64_t layer = kNoLayer;        ///< kNoLayer: of the model
  int64_t index = 0;               ///< of an expert or a head with a tensor of its own
  int64_t count = 1;               ///< of those that one tensor holds, its first dimension
  std::string name;
  Shape shape;
};

/// All of them: the model's, then layer by layer, in the order of the tables.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

/// A tensor of one expert, out of one that stacks those of all.
struct ExpertTensor {
  Role role{};
  std::string name;
  Shape shape;
  StackedSlice slice;
};
/// What a stacked tensor becomes where it is split, expert by expert; empty for any other.
std::vector<ExpertTensor> split_into_experts(const ExpectedTensor& stacked,
                                             const ModelConfig& config);

/// Row ranges [begin, count] of a role inside its fused tensor, which has rows.
using RowRanges = std::vector<std::pair<int64_t, int64_t>>;
RowRanges row_ranges(Role role, Role fused_role, int64_t rows, const ModelConfig& config);

}  // namespace kvcal
