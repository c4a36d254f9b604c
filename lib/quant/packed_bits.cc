#include "quant/packed_bits.h"

#include <algorithm>

#include "core/error.h"

namespace kvcal {

int64_t PackedBits::words_of(int64_t count) const {
  if (crosses_words) return (count * bits + 31) / 32;
  const int64_t per_word = 32 / bits;
  return (count + per_word - 1) / per_word;
}

int64_t PackedBits::first_bit(int64_t index) const {
  if (crosses_words) return index * bits;
  const int64_t per_word = 32 / bits;
  return index / per_word * 32 + index % per_word * bits;
}

uint8_t PackedBits::at(const std::byte* words, int64_t index) const {
  const int64_t bit = first_bit(index);
  const std::byte* const byte = words + bit / 8;
  const auto shift = static_cast<unsigned>(bit % 8);
  // The bits of one code lie in at most two bytes, and no byte after the last is read.
  unsigned pair = static_cast<unsigned>(byte[0]);
  if (shift + static_cast<unsigned>(bits) > 8) pair |= static_cast<unsigned>(byte[1]) << 8;
  return static_cast<uint8_t>(pair >> shift & ((1u << bits) - 1u));
}

namespace {

/// Reads words without codes that cross them.
void unpack_words(int bits, const std::byte* words, size_t count, uint8_t* codes) {
  const int per_word = 32 / bits;
  const uint32_t mask = (1u << bits) - 1u;
  for (size_t i = 0; i < count; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, words + 4 * i, sizeof(word));
    for (int k = 0; k < per_word; ++k, word >>= bits) *codes++ = static_cast<uint8_t>(word & mask);
  }
}

}  // namespace

void PackedBits::unpack(const std::byte* words, int64_t first, std::span<uint8_t> codes) const {
  const bool is_dense = crosses_words || 32 % bits == 0;
  const int64_t together = is_dense ? 8 : 32 / bits;  // which begin at a whole byte
  const auto count = static_cast<int64_t>(codes.size());
  const int64_t head = std::min(count, (together - first % together) % together);
  const int64_t whole = (count - head) / together;
  for (int64_t i = 0; i < head; ++i) codes[static_cast<size_t>(i)] = at(words, first + i);
  const std::byte* const begin = words + first_bit(first + head) / 8;
  if (is_dense)
    unpack_eights(bits, begin, static_cast<size_t>(whole), codes.data() + head);
  else
    unpack_words(bits, begin, static_cast<size_t>(whole), codes.data() + head);
  for (int64_t i = head + whole * together; i < count; ++i)
    codes[static_cast<size_t>(i)] = at(words, first + i);
}

void PackedBits::pack(std::span<const uint8_t> codes, std::byte* words) const {
  std::fill_n(words, words_of(static_cast<int64_t>(codes.size())) * 4, std::byte{0});
  for (size_t i = 0; i < codes.size(); ++i) {
    KVCAL_CHECK(codes[i] >> bits == 0);
    const int64_t bit = first_bit(static_cast<int64_t>(i));
    std::byte* const byte = words + bit / 8;
    const unsigned pair = static_cast<unsigned>(codes[i]) << (bit % 8);
    byte[0] |= static_cast<std::byte>(pair & 0xffu);
    if (pair > 0xffu) byte[1] |= static_cast<std::byte>(pair >> 8);
  }
}

std::vector<std::byte> PackedBits::pack_columns(std::span<const uint8_t> codes,
                                                int64_t columns) const {
  const auto width = static_cast<size_t>(columns), rows = codes.size() / width;
  const auto words = static_cast<size_t>(words_of(static_cast<int64_t>(rows)));
  std::vector<std::byte> packed(words * width * 4), column(words * 4);
  std::vector<uint8_t> of_column(rows);
  for (size_t at = 0; at < width; ++at) {
    for (size_t row = 0; row < rows; ++row) of_column[row] = codes[row * width + at];
    pack(of_column, column.data());
    for (size_t word = 0; word < words; ++word)
      std::memcpy(packed.data() + (word * width + at) * 4, column.data() + word * 4, 4);
  }
  return packed;
}

}  // namespace kvcal
