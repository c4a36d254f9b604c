#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "forward/layer_forward.h"

namespace kvcal {

/// Samples of each part of a divided pass: ascending, each sample in one part.
struct SampleParts {
  std::vector<std::vector<size_t>> samples_of;  ///< [parts]
  std::string_view name = "part";               ///< word for a part in messages: "rank"

  /// Contiguous parts with so many samples each.
  static SampleParts behind_each_other(std::span<const size_t> counts);
};

// Merges the observations of all parts: ranges in the order of all samples, sums and maxima for the
// rest, so the result equals that of one pass. A part without samples is nullopt. Throws Error
// naming a part whose results do not match its samples.
LayerObservation merged(std::span<const std::optional<LayerObservation>> parts,
                        const SampleParts& samples);
LayerAdvance merged(std::span<const std::optional<LayerAdvance>> parts, const SampleParts& samples);
LinearObservation merged(std::span<const std::optional<LinearObservation>> parts,
                         const SampleParts& samples);
SaturationCounts merged(std::span<const std::optional<SaturationCounts>> parts,
                        const SampleParts& samples);
AttentionComparison merged(std::span<const std::optional<AttentionComparison>> parts,
                           const SampleParts& samples);
/// The results of one call; at least one part has one.
LayerResult merged(std::vector<std::optional<LayerResult>> parts, const SampleParts& samples);

}  // namespace kvcal
