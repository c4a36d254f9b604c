#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "forward/layer_forward.h"

namespace kvcal {

/// Serializes the observations of a pass over a layer, for other machines and for files:
/// little-endian, after a version and a kind. Equal values give equal bytes.
std::vector<std::byte> to_bytes(const LayerObservation& seen);
std::vector<std::byte> to_bytes(const LayerAdvance& advance);
std::vector<std::byte> to_bytes(const LinearObservation& seen);
std::vector<std::byte> to_bytes(const SaturationCounts& counts);
std::vector<std::byte> to_bytes(const AttentionComparison& comparison);
std::vector<std::byte> to_bytes(const LayerResult& result);

/// Inverse of to_bytes, for untrusted bytes. Checks every count against the size, every value
/// against its possible range, and the order of Linears. Throws Error with what was found and
/// where. The caller must check the numbers of samples and heads.
LayerObservation layer_observation_from(std::span<const std::byte> bytes);
LayerAdvance layer_advance_from(std::span<const std::byte> bytes);
LinearObservation linear_observation_from(std::span<const std::byte> bytes);
SaturationCounts saturation_from(std::span<const std::byte> bytes);
AttentionComparison attention_comparison_from(std::span<const std::byte> bytes);
/// The result of such a pass.
LayerResult layer_result_from(LayerPass pass, std::span<const std::byte> bytes);

}  // namespace kvcal
