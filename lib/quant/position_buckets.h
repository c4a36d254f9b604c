#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvcal {

/// More than any sample has: a position is below 2^31.
inline constexpr size_t kMostPositionBuckets = 64;

/// Bucket of a position in a sample: 0, 1, 2, 3, 4 to 5, 6 to 7, 8 to 11, 12 to 15, … (halves of
/// octaves), so that the first tokens stand alone and the last quarter of 2^n tokens is a bucket.
constexpr size_t position_bucket(int64_t position) {
  if (position < 2) return static_cast<size_t>(position);
  const auto octave = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(position))) - 1;
  return 2 * octave + static_cast<size_t>((position >> (octave - 1)) & 1);
}

/// The first position of a bucket.
constexpr int64_t first_position(size_t bucket) {
  if (bucket < 2) return static_cast<int64_t>(bucket);
  return static_cast<int64_t>(2 + bucket % 2) << (bucket / 2 - 1);
}

}  // namespace kvcal
