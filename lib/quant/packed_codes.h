#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/error.h"

namespace kvcal {

/// Parts of 2 x kWidth bits, kPlace x 2 bits apart: their upper halves move to kPlace bits above
/// the lower ones.
template <int kWidth, int kPlace>
constexpr uint64_t moved_apart(uint64_t word) {
  uint64_t low = 0;  // the lower halves' bits
  for (int at = 0; at < 64; at += 2 * kPlace) low |= ((uint64_t{1} << kWidth) - 1) << at;
  return (word & low) | (word << (kPlace - kWidth) & low << kPlace);
}

/// Reads 8 x eights codes of kBits bits each, the first in the lowest bits: eight codes fill kBits
/// bytes.
template <int kBits>
inline void unpack_eights(const std::byte* bytes, size_t eights, uint8_t* codes) {
  if constexpr (kBits == 8) {
    std::memcpy(codes, bytes, 8 * eights);
  } else if constexpr (kBits == 4) {
    for (size_t i = 0; i < 4 * eights; ++i) {  // in a form that compilers vectorize
      const auto byte = static_cast<uint8_t>(bytes[i]);
      codes[2 * i] = byte & 15u;
      codes[2 * i + 1] = byte >> 4;
    }
  } else {
    for (size_t i = 0; i < eights; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i * kBits, kBits);
      // Halves move apart: four codes, then two, then one in each part.
      word = moved_apart<4 * kBits, 32>(word);
      word = moved_apart<2 * kBits, 16>(word);
      word = moved_apart<kBits, 8>(word);
      std::memcpy(codes + 8 * i, &word, sizeof(word));
    }
  }
}

/// Calls run(std::integral_constant<int, bits>()). bits: 1 to 8.
template <class Run>
void with_bits(int bits, const Run& run) {
  switch (bits) {
    case 1:
      return run(std::integral_constant<int, 1>());
    case 2:
      return run(std::integral_constant<int, 2>());
    case 3:
      return run(std::integral_constant<int, 3>());
    case 4:
      return run(std::integral_constant<int, 4>());
    case 5:
      return run(std::integral_constant<int, 5>());
    case 6:
      return run(std::integral_constant<int, 6>());
    case 7:
      return run(std::integral_constant<int, 7>());
    default:
      KVCAL_CHECK(bits == 8);
      run(std::integral_constant<int, 8>());
  }
}

inline void unpack_eights(int bits, const std::byte* bytes, size_t eights, uint8_t* codes) {
  with_bits(bits, [&](auto known) { unpack_eights<decltype(known)::value>(bytes, eights, codes); });
}

}  // namespace kvcal
