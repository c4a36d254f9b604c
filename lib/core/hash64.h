#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcal {

/// XXH3 of the bytes, 64 bits: as fast as memory is read. Finds damage, not malice.
uint64_t hash64(std::span<const std::byte> bytes);

}  // namespace kvcal
