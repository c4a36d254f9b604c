#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "eval/likelihood.h"

namespace kvcal {

/// The cost of a layer whose cache alone is quantized.
struct LayerSensitivity {
  int64_t layer = 0;
  double kl_mean = 0.0;  ///< nats
  double kl_stderr = 0.0;
};

/// A cache of which some layers keep 16 bits, and what it gives.
struct MixedCache {
  std::vector<int64_t> kept;  ///< layers in 16 bits, ascending
  Likelihood result;
};

/// Scores caches that keep these layers in 16 bits, in one pass over the text.
using MeasureKept =
    std::function<std::vector<Likelihood>(const std::vector<std::vector<int64_t>>& kept)>;

/// Layers by what they cost, the dearest first; of equals the lower one.
void rank(std::vector<LayerSensitivity>& layers);

/// Keeps the first 0, 1, 2, .. of ranked layers until the mean KL is within the budget, and finds
/// the least number for which it was measured to be, taking it that KL falls with each layer that
/// is kept. All that was measured, by the number of layers; without a budget eight numbers between
/// none and all. Layers' KL do not add up, so each is measured. The cache that keeps every layer is
/// the reference and is not measured.
struct MixedSearch {
  std::vector<MixedCache> measured;
  /// Index of the one proposed; nullopt without a budget, or where all layers must be kept.
  std::optional<size_t> proposed;
};
MixedSearch search_kept_layers(const std::vector<LayerSensitivity>& ranked,
                               std::optional<double> kl_budget, const MeasureKept& measure);

}  // namespace kvcal
