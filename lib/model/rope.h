#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/backend.h"
#include "model/architecture.h"

namespace kvcal {

/// Angles per position step of each pair of dimensions, [rotary_dim / 2], and what cos and sin are
/// multiplied by. sequence_length matters for dynamic scaling only. Source: transformers
/// `ROPE_INIT_FUNCTIONS`.
struct RopeFrequencies {
  std::vector<float> inverse;
  float attention_factor = 1.0f;
};
RopeFrequencies rope_frequencies(const ModelConfig& config, int64_t sequence_length);

/// cos and sin for every position that will be needed, in backend memory.
class RopeTable {
 public:
  /// Rows for the positions of sequences of these lengths.
  RopeTable(const ModelConfig& config, const std::vector<int64_t>& sequence_lengths,
            Backend& backend);

  const float* cos() const { return cos_.as<float>(); }
  const float* sin() const { return sin_.as<float>(); }
  /// The table row of a position in a sequence of that length.
  int32_t row(int64_t position, int64_t sequence_length) const;

 private:
  bool is_stretched(int64_t sequence_length) const;

  bool dynamic_ = false;
  int64_t trained_length_ = 0;
  std::map<int64_t, int64_t>
      first_row_;  ///< by sequence length where dynamic scaling stretches it; 0: all others
  Buffer cos_, sin_;
};

}  // namespace kvcal
