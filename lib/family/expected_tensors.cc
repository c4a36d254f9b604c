#include "family/expected_tensors.h"

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

std::vector<Role> fused_roles_of(Role role) {
  switch (role) {
    case Role::kQuery:
      return {Role::kQueryKeyValue, Role::kQueryAndGate};
    case Role::kQueryGate:
      return {Role::kQueryAndGate};
    case Role::kKey:
    case Role::kValue:
      return {Role::kQueryKeyValue};
    case Role::kQueryBias:
    case Role::kKeyBias:
    case Role::kValueBias:
      return {Role::kQueryKeyValueBias};
    case Role::kGate:
    case Role::kUp:
      return {Role::kGateUp};
    case Role::kExpertGate:
    case Role::kExpertUp:
      return {Role::kExpertGateUp};
    case Role::kExpertGateBias:
    case Role::kExpertUpBias:
      return {Role::kExpertGateUpBias};
    case Role::kSharedGate:
    case Role::kSharedUp:
      return {Role::kSharedGateUp};
    default:
      return {};
  }
}

namespace {

/// Every head's first or second half.
RowRanges query_and_gate_ranges(bool is_gate, const ModelConfig& config) {
  RowRanges ranges;
  for (int64_t head = 0; head < config.num_attention_heads; ++head)
    ranges.emplace_back((2 * head + (is_gate ? 1 : 0)) * config.head_dim, config.head_dim);
  return ranges;
}

}  // namespace

RowRanges row_ranges(Role role, Role fused_role, int64_t rows, const ModelConfig& config) {
  if (fused_role == Role::kQueryAndGate)
    return query_and_gate_ranges(role == Role::kQueryGate, config);
  if (fused_role != Role::kQueryKeyValue && fused_role != Role::kQueryKeyValueBias) {
    const bool is_gate = role == Role::kGate || role == Role::kExpertGate ||
                         role == Role::kExpertGateBias || role == Role::kSharedGate;
    return {{is_gate ? 0 : rows / 2, rows / 2}};
  }
  const bool is_query = role == Role::kQuery || role == Role::kQueryBias;
  const bool is_key = role == Role::kKey || role == Role::kKeyBias;
  const int64_t q = config.query_width(), kv = config.kv_width();
  if (config.architecture->fused_qkv == FusedQkv::kConcatenated)
    return is_query ? std::vector{std::pair{int64_t{0}, q}}
                    : std::vector{std::pair{is_key ? q : q + kv, kv}};
  const int64_t group = q / config.num_key_value_heads, dim = config.head_dim;
  RowRanges ranges;
  for (int64_t head = 0; head < config.num_key_value_heads; ++head) {
    const int64_t begin = head * (group + 2 * dim);
    if (is_query) {
      ranges.emplace_back(begin, group);
    } else {
      ranges.emplace_back(begin + group + (is_key ? 0 : dim), dim);
    }
  }
  return ranges;
}

}  // namespace kvcal
