#include "family/expected_tensors.h"

#include <algorithm>

namespace kvcal {
namespace {

/// Adds the tensors of a row, below prefix; layer: null for rows of the model.
void append(const TensorRow& row, const std::string& prefix, int64_t layer,
            const ModelConfig& config, std::vector<ExpectedTensor>& tensors) {
  const int64_t repeat = row.repeat == Dim::kOne ? 1 : config.size_of(row.repeat);
  Shape shape;
  if (row.is_stacked()) shape.dims.push_back(repeat);
  for (const Dim dim : row.shape) shape.dims.push_back(config.size_of(dim));
  for (int64_t i = 0; i < (row.is_stacked() ? 1 : repeat); ++i)
    tensors.push_back({.row = &row,
                       .layer = layer,
                       .index = i,
                       .count = row.is_stacked() ? repeat : 1,
                       .name = prefix + row.name_of(i),
                       .shape = shape});
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> tensors;
  for (const TensorRow& row : config.architecture->model_tensors)
    if (config.holds(row.conditions, nullptr))
      append(row, row.is_of_head() ? config.head_prefix : config.backbone_prefix, kNoLayer, config,
             tensors);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const TensorRow& row : config.architecture->layer_tensors)
      if (config.holds(row.conditions, &config.layers[static_cast<size_t>(layer)]))
        append(row, config.layer_prefix(layer), layer, config, tensors);
  return tensors;
}

std::vector<ExpertTensor> split_into_experts(const ExpectedTensor& stacked,
                                             const ModelConfig& config) {
  const TensorRow& row = *stacked.row;
  const auto parts = static_cast<int64_t>(row.split.size());
  std::vector<ExpertTensor> experts;
  for (int64_t i = 0; i < stacked.count; ++i)
    for (int64_t part = 0; part < parts; ++part) {
      const SplitRow& own = row.split[static_cast<size_t>(part)];
      const StackedSlice slice{
          .tensor = stacked.name,
          .index = i,
          .part = part,
          .parts = parts,
          .is_transposed = row.layout == Layout::kInOut || row.layout == Layout::kInOutInterleaved,
          .is_interleaved =
              row.layout == Layout::kInOutInterleaved || row.layout == Layout::kOutInterleaved};
      experts.push_back({.role = own.role,
                         .name = config.layer_prefix(stacked.layer) + numbered(own.name, i),
                         .shape = shape_of(slice, stacked.shape),
                         .slice = slice});
    }
  return experts;
}

namespace {

/// First or second half of every head.
RowRanges halves_of_heads(int64_t place, const ModelConfig& config) {
  RowRanges ranges;
  for (int64_t head = 0; head < config.num_attention_heads; ++head)
    ranges.emplace_back((2 * head + place) * config.head_dim, config.head_dim);
  return ranges;
}

/// Rows of Q, K or V (by place) in group order: the queries of a group, then its K and V.
RowRanges rows_by_group(int64_t place, const ModelConfig& config) {
  const int64_t dim = config.head_dim, group = config.query_width() / config.num_key_value_heads;
  RowRanges ranges;
  for (int64_t head = 0; head < config.num_key_value_heads; ++head) {
    const int64_t begin = head * (group + 2 * dim);
    ranges.emplace_back(place == 0 ? begin : begin + group + (place - 1) * dim,
                        place == 0 ? group : dim);
  }
  return ranges;
}

}  // namespace

RowRanges row_ranges(Role role, Role fused_role, int64_t rows, const ModelConfig& config) {
  const std::vector<Role>& held = row_of(fused_role).holds;
  const int64_t place = std::ranges::find(held, role) - held.begin();
  if (fused_role == Role::kQueryAndGate) return halves_of_heads(place, config);
  if (held.size() == 2) return {{place * rows / 2, rows / 2}};
  if (config.architecture->fused_qkv != FusedQkv::kConcatenated)
    return rows_by_group(place, config);
  const int64_t q = config.query_width(), kv = config.kv_width();
  return {place == 0 ? std::pair{int64_t{0}, q} : std::pair{q + (place - 1) * kv, kv}};
}

}  // namespace kvcal
