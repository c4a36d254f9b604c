#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "forward/layer_forward.h"

namespace kvcal {

/// Serializes the result of a pass over a layer, for other machines and for files: little-endian,
/// after a version and a kind. Equal values give equal bytes.
std::vector<std::byte> to_bytes(const LayerResult& result);

/// Inverse of to_bytes, of the result of such a pass, for untrusted bytes. Checks every count
/// against the size, every value against its possible range, and the order of Linears. Throws Error
/// with what was found and where. The caller must check the numbers of samples and heads.
LayerResult layer_result_from(LayerPass pass, std::span<const std::byte> bytes);

}  // namespace kvcal
