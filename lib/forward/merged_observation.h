#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "forward/layer_forward.h"

namespace kvcal {

/// Which samples of all each part of a divided pass has: ascending, each sample in one part.
struct SampleParts {
  std::vector<std::vector<size_t>> samples_of;  ///< [parts]
  std::string_view name = "part";               ///< what a part is: "rank"

  /// Parts of so many samples each, one behind the other.
  static SampleParts behind_each_other(std::span<const size_t> counts);
};

// What all parts saw, put together: ranges in the order of all samples, sums and maxima of the
// rest, so the same as one pass over all sees. parts: nothing where one has no samples. Throws
// Error naming the part that does not fit: its results must be of the samples it has.
LayerObservation merged(std::span<const std::optional<LayerObservation>> parts,
                        const SampleParts& samples);
LayerAdvance merged(std::span<const std::optional<LayerAdvance>> parts, const SampleParts& samples);
LinearObservation merged(std::span<const std::optional<LinearObservation>> parts,
                         const SampleParts& samples);
SaturationCounts merged(std::span<const std::optional<SaturationCounts>> parts,
                        const SampleParts& samples);

}  // namespace kvcal
