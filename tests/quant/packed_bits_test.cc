#include "quant/packed_bits.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "support/catch.h"

namespace kvcal {
namespace {

std::vector<uint8_t> codes_of(int bits, size_t count) {
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < count; ++i)
    codes.push_back(static_cast<uint8_t>((i * 37 + 5) & ((1u << bits) - 1)));
  return codes;
}

}  // namespace

TEST_CASE("packed codes come back, of any width and number") {
  for (int bits = 1; bits <= 8; ++bits)
    for (const bool crosses : {false, true})
      for (const size_t count : {1u, 31u, 32u, 33u, 70u}) {
        INFO(bits << " bits, " << count << " codes, " << crosses);
        const PackedBits packing{.bits = bits, .crosses_words = crosses};
        const std::vector<uint8_t> codes = codes_of(bits, count);
        std::vector<std::byte> words(
            static_cast<size_t>(packing.words_of(static_cast<int64_t>(count))) * 4);
        packing.pack(codes, words.data());
        std::vector<uint8_t> back(count);
        packing.unpack(words.data(), 0, back);
        CHECK(back == codes);
        for (const size_t first : {size_t{1}, size_t{9}, size_t{13}, count - 1})
          if (first < count) {
            back.resize(count - first);
            packing.unpack(words.data(), static_cast<int64_t>(first), back);
            CHECK(std::ranges::equal(back, std::span(codes).subspan(first)));
          }
      }
}

TEST_CASE("the first code lies in the lowest bits of a little-endian word") {
  const std::vector<uint8_t> codes{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<std::byte> bytes(8);
  PackedBits{.bits = 4}.pack(codes, bytes.data());
  uint32_t words[2];
  std::memcpy(words, bytes.data(), 8);
  CHECK(words[0] == 0x87654321u);
  CHECK(words[1] == 9u);
}

TEST_CASE("codes of 3 bits leave spare bits in a word, or cross words") {
  CHECK(PackedBits{.bits = 3}.words_of(32) == 4);
  CHECK(PackedBits{.bits = 3, .crosses_words = true}.words_of(32) == 3);
  // Source: GPTQ's layout, in which code 10 has its two lowest bits in the first word.
  std::vector<uint8_t> codes(32, 0);
  codes[10] = 7;
  std::vector<std::byte> bytes(12);
  PackedBits{.bits = 3, .crosses_words = true}.pack(codes, bytes.data());
  uint32_t words[3];
  std::memcpy(words, bytes.data(), 12);
  CHECK(words[0] == 3u << 30);
  CHECK(words[1] == 1u);
}

}  // namespace kvcal
