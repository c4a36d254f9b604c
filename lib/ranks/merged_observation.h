#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/layer_forward.h"
#include "ranks/sample_assignment.h"

namespace kvcal {

// What all ranks saw, put together: ranges in the order of all samples, sums and maxima of the
// rest, so the same as one process sees. parts: by rank; nothing where a rank has no samples.
// Throws Error naming no rank but what does not fit: the parts must be of the samples that
// assignment says.

LayerObservation merged(std::span<const std::optional<LayerObservation>> parts,
                        const SampleAssignment& assignment);
LayerAdvance merged(std::span<const std::optional<LayerAdvance>> parts,
                    const SampleAssignment& assignment);
LinearObservation merged(std::span<const std::optional<LinearObservation>> parts,
                         const SampleAssignment& assignment);
SaturationCounts merged(std::span<const std::optional<SaturationCounts>> parts,
                        const SampleAssignment& assignment);

}  // namespace kvcal
