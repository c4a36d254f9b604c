#pragma once

#include <cstdint>

#include "quant/host_device.h"

namespace kvcal {

/// Keys that sparse attention reads beside the causal mask: one bit a key. Bit i % 32 of word i /
/// 32 of a query's row is set where the query reads key i, counted from the first key of its
/// segment.
struct KeySelection {
  const uint32_t* words = nullptr;  ///< [q rows, row_words] backend memory; null: all keys are read
  int64_t row_words = 0;

  KVCAL_HD static constexpr int64_t words_of(int64_t keys) { return (keys + 31) / 32; }
  KVCAL_HD const uint32_t* row(int64_t q_row) const {
    return words ? words + q_row * row_words : nullptr;
  }
  /// row: of the query, or null.
  KVCAL_HD static bool holds(const uint32_t* row, int64_t key) {
    return !row || (row[key / 32] >> (key % 32) & 1u) != 0;
  }
};

/// Number that orders scores: a larger score has a larger one. Zeros are equal.
KVCAL_HD inline uint32_t order_of_score(float score) {
  if (score != score) return 0xffffffffu;
  const uint32_t bits = bits_of(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace kvcal
