// Outliers are factors of channels. KvFactors says by how much each channel of a layer's K and V
// grows; change_of turns that into a change of each tensor of the family's table, where K's or
// Q's weights stand in it: projection, bias, norm, fused or not. What chooses factors knows no
// tensor, and what writes the file no family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "family/expected_tensors.h"

namespace kvcal {

/// Factors of the channels of one layer's cached K and V. Those of K are undone in Q and those of V
/// in the projection behind attention, so the model's function stays. Empty: all are 1.
struct LayerFactors {
  std::vector<float> k = {};           ///< [kv_heads, head_dim]; equal within a unit of key_units
  std::vector<float> v = {};           ///< [kv_heads, value_dim]
  std::vector<float> key_offset = {};  ///< [kv_heads, head_dim], added to K's bias before turns and
                                       ///< factors; another function, but for can_shift_key
  /// [kv_heads, pairs that RoPE turns]: angles in radians by which each pair of K, and of Q, is
  /// turned before its factor. RoPE turns the same plane, so the function stays. Empty: 0.
  std::vector<double> key_turns = {};
};
/// [num_hidden_layers]
using KvFactors = std::vector<LayerFactors>;

/// Reason why factors of K cannot be undone in this model's Q; nullopt: they can.
std::optional<std::string> reason_against_key_factors(const ModelConfig& config);
/// Likewise for V and the projection behind attention.
std::optional<std::string> reason_against_value_factors(const ModelConfig& config);
/// Reason why this layer's pairs of K cannot be turned where only factors can: a norm, whose
/// weights differ within a pair.
std::optional<std::string> reason_against_key_turns(const ModelConfig& config, int64_t layer);
/// Whether a mean of this layer's K may move out of its bias, in channels that RoPE does not turn:
/// that adds the same to all scores of a query, which a softmax ignores, unless its scores are
/// capped or it has sinks.
bool can_shift_key(const ModelConfig& config, int64_t layer);
/// Reason why a bias cannot make K large, even where attention_bias is set.
std::optional<std::string> reason_against_key_offset(const ModelConfig& config);

/// Channels of one head that must have the same factor: the two of each pair that RoPE turns, the
/// fastest pair first; then each channel that does not turn, alone.
using KeyUnits = std::vector<std::vector<int64_t>>;
struct HeadUnits {
  KeyUnits turning, fixed;
  KeyUnits all() const;
};
HeadUnits key_units(const ModelConfig& config, int64_t layer);

/// Whether one norm weight serves K's or Q's heads, so that all have the same factors.
bool shares_key_factors(const ModelConfig& config, int64_t layer);

/// New values of the outputs of a Linear or norm: factor · own value + share · partner's value.
struct OutputChange {
  std::vector<float> factors = {};     ///< [outputs]; empty: 1
  std::vector<float> shares = {};      ///< [outputs]; empty: 0
  std::vector<int64_t> partners = {};  ///< [outputs], where shares are

  /// Whether powers of two alone change the values, which rounds none.
  bool is_exact() const;
};

/// New values of a tensor: OutputChange of (stored + offset), where a norm's weight w counts as
/// 1 + w if the family stores it so.
struct TensorChange {
  OutputChange outputs = {};        ///< of element i: output i / elements_an_output % size
  uint64_t elements_an_output = 1;  ///< consecutive elements of the same output
  std::vector<float> offsets = {};  ///< of a vector's elements; empty: 0
  bool adds_one = false;

  bool is_none() const { return outputs.factors.empty() && offsets.empty(); }
  /// Element whose value mixes into that of i; i where none does.
  uint64_t partner(uint64_t i) const;
  /// The new value of element i; other: that of partner(i).
  float apply(float value, float other, uint64_t i) const;
  /// |new / wanted - 1| of what a norm multiplies by, where it adds one to its weight; else 0.
  double error(float value, uint64_t i) const;
};

/// Change of one tensor of the checkpoint. The config must have no reason against the factors.
TensorChange change_of(const ExpectedTensor& tensor, const ModelConfig& config,
                       const KvFactors& factors);

}  // namespace kvcal
