#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcal {

/// 64-bit XXH3 of the bytes, as fast as memory is read. Detects damage, not tampering.
uint64_t hash64(std::span<const std::byte> bytes);

}  // namespace kvcal
