#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcal {

/// Unsigned codes of a few bits, packed into little-endian 32-bit words, the first code in the
/// lowest bits.
struct PackedBits {
  int bits = 4;  ///< 1 to 8
  /// Codes may lie in two words, so that no bit is spare; else a word holds floor(32 / bits) codes.
  /// The same where bits divide 32.
  bool crosses_words = false;

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

 private:
  int64_t first_bit(int64_t index) const;
};

}  // namespace kvcal
