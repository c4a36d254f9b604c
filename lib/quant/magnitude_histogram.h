#pragma once

#include "quant/host_device.h"

#include <array>
#include <cstdint>

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

}  // namespace kvcal
