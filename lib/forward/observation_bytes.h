#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "forward/layer_forward.h"

namespace kvcal {

/// The observations of a pass over a layer as bytes, for other machines and for files:
/// little-endian, after a version and a kind. The same values give the same bytes.
std::vector<std::byte> to_bytes(const LayerObservation& seen);
std::vector<std::byte> to_bytes(const LayerAdvance& advance);
std::vector<std::byte> to_bytes(const LinearObservation& seen);
std::vector<std::byte> to_bytes(const SaturationCounts& counts);

/// Inverse of to_bytes, for bytes from any source: every count is checked against the bytes
/// there are, every value against what a pass can see, Linears must be in order. Throws Error
/// saying what was found and where. How many samples and heads there should be is the caller's to
/// check.
LayerObservation layer_observation_from(std::span<const std::byte> bytes);
LayerAdvance layer_advance_from(std::span<const std::byte> bytes);
LinearObservation linear_observation_from(std::span<const std::byte> bytes);
SaturationCounts saturation_from(std::span<const std::byte> bytes);

}  // namespace kvcal
