#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"

namespace kvcal {

/// Unsigned codes of a few bits, packed into little-endian 32-bit words, the first code in the
/// lowest bits.
struct PackedBits {
  int bits = 4;  ///< 1 to 8
  /// Codes may lie in two words, so that no bit is spare; else a word holds floor(32 / bits) codes.
  /// The same where bits divide 32.
  bool crosses_words = false;

  /// Place of the code at index of a row of words, in bits.
  int64_t first_bit(int64_t index) const;
  /// Words that hold count codes.
  int64_t words_of(int64_t count) const;
  /// Whether words can hold count codes and no spare word.
  bool fits(int64_t words, int64_t count) const { return words_of(count) == words; }
  /// The code at index of a row of words. words: of any alignment.
  uint8_t at(const std::byte* words, int64_t index) const;
  /// Reads codes[i] = at(words, first + i), whole words at a time.
  void unpack(const std::byte* words, int64_t first, std::span<uint8_t> codes) const;
  /// Writes all words of a row; spare bits are 0. Each code is below 2^bits.
  void pack(std::span<const uint8_t> codes, std::byte* words) const;
  /// Words [words_of(rows), columns] of codes [rows, columns], packed down the columns.
  std::vector<std::byte> pack_columns(std::span<const uint8_t> codes, int64_t columns) const;
};

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
  KVCAL_CHECK(bits >= 1 && bits <= 8);
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    ((bits == kLess + 1 ? run(std::integral_constant<int, kLess + 1>()) : void()), ...);
  }
  (std::make_integer_sequence<int, 8>());
}

inline void unpack_eights(int bits, const std::byte* bytes, size_t eights, uint8_t* codes) {
  with_bits(bits, [&](auto known) { unpack_eights<decltype(known)::value>(bytes, eights, codes); });
}

}  // namespace kvcal
