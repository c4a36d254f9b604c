// Numbers of attention that no matrix product reads.
#include <utility>
#include <vector>

#include "forward/packed_layer.h"
#include "stored/weight_rows.h"

namespace kvcal {

// The last tap also has the input that is added to what is convolved. Source: transformers 5.24,
// models/inkling `InklingShortConvolution`.
PackedValues pack_convolution(const Weights& weights, const ModelConfig& config, int64_t layer,
                              std::span<const Role> roles, Backend& backend) {
  std::vector<float> taps;
  for (const Role role : roles) {
    if (!weights.has(layer, role)) return {};
    const std::vector<float> part = as_float32(weights.rows(layer, role).parts);
    taps.insert(taps.end(), part.begin(), part.end());
  }
  const auto kernel = static_cast<size_t>(config.short_kernel);
  for (size_t last = kernel - 1; last < taps.size(); last += kernel) taps[last] += 1.0f;
  return {std::move(taps), backend};
}

// The file has [relative_rank, relative_extent].
PackedValues pack_relative_table(const Weights& weights, const ModelConfig& config, int64_t layer,
                                 Backend& backend) {
  const std::vector<float> stored = as_float32(weights.rows(layer, Role::kRelativeTable).parts);
  const auto rank = static_cast<size_t>(config.relative_rank);
  const size_t extent = stored.size() / rank;
  std::vector<float> table(stored.size());
  for (size_t i = 0; i < rank; ++i)
    for (size_t distance = 0; distance < extent; ++distance)
      table[distance * rank + i] = stored[i * extent + distance];
  return {std::move(table), backend};
}

}  // namespace kvcal
