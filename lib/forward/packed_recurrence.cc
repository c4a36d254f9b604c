#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "forward/packed_layer.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

/// Rows [first, first + count) of every group, for a matrix with rows in group order.
void append_group_rows(const TensorView& matrix, int64_t groups, int64_t first, int64_t count,
                       std::vector<TensorView>& parts) {
  const int64_t size = matrix.shape[0] / groups;
  for (int64_t group = 0; group < groups; ++group)
    parts.push_back(rows_of(matrix, group * size + first, count));
}

/// Rows of a delta net in the backend's order: gates, then q, k and v of all heads, then update
/// strengths, then decays. The file has them by key head: q, k, v, gate; and strength, decay.
/// Source: transformers qwen3_next `fix_query_key_value_ordering`.
std::vector<TensorView> delta_rows(const TensorView& values, const TensorView& gates,
                                   const RecurrentConfig& config) {
  const int64_t k = config.state_dim, v = config.inner() / config.groups;
  const int64_t heads = config.heads / config.groups;
  std::vector<TensorView> parts;
  append_group_rows(values, config.groups, 2 * k + v, v, parts);
  append_group_rows(values, config.groups, 0, k, parts);
  append_group_rows(values, config.groups, k, k, parts);
  append_group_rows(values, config.groups, 2 * k, v, parts);
  append_group_rows(gates, config.groups, 0, heads, parts);
  append_group_rows(gates, config.groups, heads, heads, parts);
  return parts;
}

/// Rows of lightning attention in the backend's order: V, K, Q. The file has Q, K, V of each head.
std::vector<TensorView> lightning_rows(const TensorView& in, const RecurrentConfig& config) {
  std::vector<TensorView> parts;
  for (const int64_t place : {2, 1, 0})
    append_group_rows(in, config.heads, place * config.head_dim, config.head_dim, parts);
  return parts;
}

/// Logarithms of what a head's state keeps from token to token. Source: transformers 5.24
/// `MiniMaxLightningAttention.get_slope_rate`.
std::vector<float> lightning_decay(const ModelConfig& config, int64_t layer) {
  const auto heads = static_cast<double>(config.recurrent.heads);
  const double last = static_cast<double>(config.num_hidden_layers - 1) + 1e-5;
  const double share = 1.0 - static_cast<double>(layer) / last + 1e-5;
  std::vector<float> decay;
  for (int64_t head = 1; head <= config.recurrent.heads; ++head)
    decay.push_back(
        static_cast<float>(-std::exp2(-8.0 * static_cast<double>(head) / heads) * share));
  return decay;
}

/// Packs the input projection with its rows in the backend's order. FP8 weights are dequantized,
/// not packed as codes: few checkpoints have them.
std::vector<PackedLinear> pack_mixer_in(const Weights& weights, const ModelConfig& config,
                                        int64_t layer, PackGroup& group, ComputeType type) {
  std::vector<LinearRows> rows;
  const auto add = [&](Role role, WeightRows of_role) {
    rows.push_back({std::move(of_role), weights.quantization(layer, role)});
  };
  // A delta net in parts, each with the heads in order.
  if (weights.has(layer, Role::kMixerZ) || weights.has(layer, Role::kMixerZDown)) {
    for (const Role role : {Role::kMixerZ, Role::kMixerZDown, Role::kMixerAlphaDown, Role::kMixerIn,
                            Role::kMixerQuery, Role::kMixerKey, Role::kMixerValue, Role::kMixerBeta,
                            Role::kMixerAlpha, Role::kMixerKeyDecays})
      if (weights.has(layer, role)) {
        WeightRows part = weights.rows(layer, role);
        if (config.architecture->recurrence == Mixer::kLightning && role == Role::kMixerIn)
          part.parts = lightning_rows(part.parts[0], config.recurrent);
        add(role, std::move(part));
      }
    return pack_linear(rows, group, type);
  }
  WeightRows in = weights.rows(layer, Role::kMixerIn);
  if (weights.has(layer, Role::kMixerGates)) {
    const WeightRows gates = weights.rows(layer, Role::kMixerGates);
    const std::vector<TensorView> parts = delta_rows(in.parts[0], gates.parts[0], config.recurrent);
    const auto first_gate = parts.end() - 2 * config.recurrent.groups;
    add(Role::kMixerIn, {.parts = {parts.begin(), first_gate}});
    add(Role::kMixerGates, {.parts = {first_gate, parts.end()}});
    return pack_linear(rows, group, type);
  }
  if (config.architecture->recurrence == Mixer::kMamba) {  // the file has the channels first
    const int64_t inner = config.recurrent.inner();
    in.parts = {rows_of(in.parts[0], inner, inner), rows_of(in.parts[0], 0, inner)};
  }
  add(Role::kMixerIn, std::move(in));
  return pack_linear(rows, group, type);
}

/// Factors of a Mamba 2 projection's rows; none where all are 1.
std::vector<float> in_factors(const RecurrentConfig& config) {
  const MixerMultipliers& multipliers = config.in_multipliers;
  if (std::ranges::all_of(multipliers, [](float value) { return value == 1.0f; })) return {};
  const int64_t states = config.groups * config.state_dim;
  const std::array counts{config.inner(), config.inner(), states, states, config.heads};
  std::vector<float> factors;
  for (size_t i = 0; i < counts.size(); ++i)
    factors.insert(factors.end(), static_cast<size_t>(counts[i]), multipliers[i]);
  return factors;
}

}  // namespace

PackedRecurrence pack_recurrence(const Weights& weights, const ModelConfig& config, int64_t layer,
                                 SharedLinears& linears, ComputeType type) {
  Backend& backend = linears.backend();
  const auto values = [&](Role role) {
    return weights.has(layer, role) ? as_float32(weights.rows(layer, role).parts)
                                    : std::vector<float>();
  };
  const auto packed_values = [&](Role role) { return PackedValues(values(role), backend); };
  const auto linear = [&](Role role) {
    return linears.take([&] {
      const LinearRows one{weights.rows_to_pack(layer, role), weights.quantization(layer, role)};
      return pack_linear({&one, 1}, linears.group(), type);
    });
  };
  PackedRecurrence packed;
  packed.in =
      linears.take([&] { return pack_mixer_in(weights, config, layer, linears.group(), type); });
  std::vector<float> in_bias = values(Role::kMixerInBias);
  if (config.architecture->recurrence == Mixer::kMamba)  // as the rows
    std::rotate(in_bias.begin(), in_bias.begin() + std::ssize(in_bias) / 2, in_bias.end());
  packed.in.bias = {std::move(in_bias), backend};
  packed.in.factors = {in_factors(config.recurrent), backend};
  packed.out = linear(Role::kMixerOut);
  packed.out.bias = packed_values(Role::kMixerOutBias);
  if (config.architecture->recurrence == Mixer::kMamba) {
    packed.states = linear(Role::kMixerStates);
    packed.step = linear(Role::kMixerStep);
    packed.step_norm = packed_values(Role::kMixerStepNorm);
    packed.b_norm = packed_values(Role::kMixerBNorm);
    packed.c_norm = packed_values(Role::kMixerCNorm);
  }
  if (config.recurrent.gate_rank > 0) packed.gates = linear(Role::kMixerZUp);
  if (config.recurrent.decay_rank > 0) packed.decays = linear(Role::kMixerAlphaUp);
  packed.norm = packed_values(Role::kMixerNorm);
  if (config.architecture->recurrence == Mixer::kLightning) {
    const auto all = [&](int64_t count, float value) {
      return PackedValues(std::vector<float>(static_cast<size_t>(count), value), backend);
    };
    packed.conv_weight = all(config.recurrent.channels, 1.0f);
    packed.steps = all(config.recurrent.heads, 0.0f);
    packed.dt_bias = all(config.recurrent.heads, std::log(std::numbers::e_v<float> - 1.0f));
    packed.decay = {lightning_decay(config, layer), backend};
    return packed;
  }
  std::vector<float> convolution;
  for (const Role role :
       {Role::kMixerConv, Role::kMixerConvQuery, Role::kMixerConvKey, Role::kMixerConvValue}) {
    const std::vector<float> part = values(role);
    convolution.insert(convolution.end(), part.begin(), part.end());
  }
  packed.conv_weight = {std::move(convolution), backend};
  packed.conv_bias = packed_values(Role::kMixerConvBias);
  packed.dt_bias = packed_values(Role::kMixerStepBias);
  std::vector<float> decay = values(Role::kMixerDecay);
  for (float& value : decay) value = -std::exp(value);
  packed.decay = {std::move(decay), backend};
  packed.skip = packed_values(Role::kMixerSkip);
  return packed;
}

}  // namespace kvcal
