#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/host_device.h"

namespace kvcal {

/// Histogram of magnitudes in log2-spaced bins: bin b counts |x| in [2^(kMinExponent +
/// b/kBinsPerOctave), next edge). Smaller values (and zeros) fall into bin 0, larger ones into the
/// last.
struct MagnitudeHistogram {
  static constexpr int kMinExponent = -24;
  static constexpr int kOctaves = 48;
  static constexpr int kBinsPerOctave = 8;
  static constexpr int kBins = kOctaves * kBinsPerOctave;

  std::array<uint64_t, kBins> counts{};

  /// Bin of a finite magnitude, from its float32 bits: the top three mantissa bits divide an octave
  /// into eight steps of equal width. So all backends agree, and no logarithm is needed.
  KVCAL_HD static constexpr int bin_of(float magnitude) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, magnitude) & 0x7fffffffu;
    const int bin = static_cast<int>(bits >> 20) - ((127 + kMinExponent) << 3);
    return bin < 0 ? 0 : bin >= kBins ? kBins - 1 : bin;
  }
  /// Lower edge of bin b (0 for the first).
  static constexpr float lower_edge(int bin) {
    if (bin <= 0) return 0.0f;
    return __builtin_bit_cast(float, static_cast<uint32_t>(bin + ((127 + kMinExponent) << 3))
                                         << 20);
  }
};

/// Coarse histogram for manifests and reports: counts of magnitudes in halves of octaves. With e =
/// first_octave + j, count 2 j covers [2^e, 1.5 * 2^e), and count 2 j + 1 covers [1.5 * 2^e, 2^(e +
/// 1)).
struct OctaveCounts {
  uint64_t zeros = 0;  ///< magnitudes below 2^-24 * 9/8, bin 0 of the histogram
  int first_octave = 0;
  std::vector<uint64_t> counts;  ///< no zero octave at either end; may be empty

  uint64_t total() const;
  /// Lower edge of counts[i], and upper edge of counts[i - 1].
  double edge(size_t i) const;
};

/// Sum over all heads.
OctaveCounts octave_counts(std::span<const MagnitudeHistogram> heads);

/// Number of magnitudes below value; assumes an even spread inside a count.
double count_below(const OctaveCounts& counts, double value);

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

/// Largest magnitudes of the channels of one layer's cache, over all tokens; empty: the layer has
/// none of its own.
struct ChannelAmax {
  std::vector<float> k;  ///< [kv_heads, head_dim], after RoPE
  std::vector<float> v;  ///< [kv_heads, value_dim]
};

/// Some rows of one sample's K in one layer, spread over its tokens.
struct KeyRows {
  std::vector<float> before;  ///< [rows, kv_heads, head_dim], without RoPE
  std::vector<float> cached;  ///< likewise, with RoPE: as the cache gets them
};

}  // namespace kvcal
