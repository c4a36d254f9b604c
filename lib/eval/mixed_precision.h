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
using ScoreLayers =
    std::function<std::vector<Likelihood>(const std::vector<std::vector<int64_t>>& kept)>;

/// Layers by what they cost, the dearest first; of equals the lower one.
void rank(std::vector<LayerSensitivity>& layers);

/// Caches that keep the first 0, 1, 2, .. of ranked layers: all that was measured, by the number of
/// layers. Layers' KL do not add up, so each is measured.
struct MixedSearch {
  std::vector<MixedCache> measured;
  /// Index of the one proposed; nullopt: without a budget, or none was within it.
  std::optional<size_t> proposed;
};

/// The least number of ranked layers, the first that are worth keeping, for which the mean KL was
/// measured to be within the budget: 0 to 4 in the first pass, 6 to 16 in the second, and so on to
/// most, then those between, taking it that KL falls with each layer that is kept. The cache that
/// keeps every layer is the reference and is not measured.
MixedSearch find_kept_layers(const std::vector<int64_t>& ranked, double kl_budget, size_t most,
                             const ScoreLayers& measure);
/// Eight numbers of ranked layers between none and all.
MixedSearch score_layer_counts(const std::vector<int64_t>& ranked, const ScoreLayers& measure);

}  // namespace kvcal
