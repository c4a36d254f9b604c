#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "family/expected_tensors.h"

namespace kvcal {

/// Random values of one tensor of an untrained model. Their spread keeps a forward pass in the
/// range of a trained one, and K has channels of large magnitude, as trained models have
/// (docs/synth.md). A value depends only on the seed, the tensor's name and its own index, so
/// threads may fill parts in any order.
class SyntheticValues {
 public:
  SyntheticValues(const ExpectedTensor& tensor, const ModelConfig& config, uint64_t seed);

  /// Fills bytes with the elements from index first on, as F32, F16 or BF16.
  void fill(DType dtype, uint64_t first, std::span<std::byte> bytes) const;

 private:
  enum class Noise : uint8_t { kNormal, kUniform };  ///< of variance 1; in [0, 1)

  /// (mean + spread · noise) · gain - offset
  struct Spread {
    float mean = 0.0f, spread = 1.0f, offset = 0.0f;
    Noise noise = Noise::kNormal;
  };

  static Spread spread_of(const ExpectedTensor& tensor, const ModelConfig& config, uint64_t seed);
  template <class Store>
  void fill_as(uint64_t first, uint64_t count, const Store& store) const;

  uint64_t key_ = 0;
  Spread spread_;
  std::vector<float> gains_;      ///< of the output channels; empty: all are 1
  uint64_t elements_a_gain_ = 1;  ///< consecutive elements with the same gain
};

/// Gains of the channels of a layer's cached K: [heads, k_dim], 1 except for a few
/// channels in each head. Depends on the seed and the layer.
std::vector<float> key_gains(const ModelConfig& config, int64_t layer, uint64_t seed);

}  // namespace kvcal
