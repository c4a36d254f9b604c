#pragma once

#include "quant/cache_formats/hadamard.h"
#include "quant/cache_formats/steps.h"

/// Octave: codes of rotated blocks, which index a codebook of INT8 values, and a float16 scale of
/// each block. K has blocks of 64, those that RoPE rotates of 4 bits, others of 3; compact K is one
/// block of 3 bits. V is one block, or blocks of 64 where the head's size is no power of two, with
/// one scale. Source, run: vLLM 0.33 v1/attention/ops/rocm_octave.py `reference_quantize`,
/// `reference_dequantize`. Its kernels are for AMD chips and heads of 256.
namespace kvcal::cache_formats::octave {

inline constexpr int64_t kBlock = 64;

/// Signs of `_signs_cpu`.
inline constexpr uint32_t kSignSeed = 0x5e17;
inline constexpr Signs kSigns{{0x9e0d463582c270ebu, 0x68c675e641d23db1u, 0xb5cabdc3f687e132u,
                               0x74afc7211e0ac1a1u, 0x027ddb3753685d96u, 0x05cb43d3e256f797u,
                               0xeb39175981a5b38cu, 0x20784184b4510dbfu}};

/// The positive half of the codebook of a normal distribution whose deviation is one.
struct Codebook {
  float values[8];
  float one;
};
template <int kBits>
KVCAL_HD constexpr Codebook codebook() {
  static_assert(kBits == 3 || kBits == 4);
  if constexpr (kBits == 3) {
    return {{14.0f, 45.0f, 79.0f, 127.0f}, 59.0f};
  } else {
    return {{6.0f, 18.0f, 30.0f, 43.0f, 58.0f, 74.0f, 95.0f, 126.0f}, 46.0f};
  }
}

/// The nearest value, the lesser one of two.
template <int kBits>
KVCAL_HD constexpr float nearest_value(const Codebook& book, float x) {
  constexpr int kHalf = 1 << (kBits - 1);
  const float magnitude = magnitude_of(x);
  int index = 0;
  for (int i = 0; i + 1 < kHalf; ++i) {
    const float middle = (book.values[i] + book.values[i + 1]) / 2.0f;
    if (x > 0.0f ? magnitude > middle : magnitude >= middle) index = i + 1;
  }
  return x > 0.0f ? book.values[index] : -book.values[index];
}

/// Rounds values that share a scale.
template <int kBits>
KVCAL_HD inline void round_block(float* x, int64_t size) {
  constexpr Codebook kBook = codebook<kBits>();
  const auto squares = static_cast<float>(squares_of(x, size));
  const float mean = ::sqrtf(squares / static_cast<float>(size));
  const float deviation = mean > 1e-12f ? mean : 1e-12f;
  double product = 0.0;
  for (int64_t i = 0; i < size; ++i) {
    const float value = nearest_value<kBits>(kBook, x[i] / deviation * kBook.one);
    product += static_cast<double>(x[i] * value);
    x[i] = value;
  }
  const auto dot = static_cast<float>(product);
  const float scale = dot > 0.0f ? squares / (dot > 1e-30f ? dot : 1e-30f) : 0.0f;
  multiply(x, size, through_f16(scale * 64.0f) / 64.0f);
}

KVCAL_HD inline void rotate(float* x, int64_t size, int64_t block) {
  for (float* part = x; part < x + size; part += block) {
    transform(part, block);
    multiply(part, block, norm_of(block));
  }
}

template <int kValueBits, bool kIsCompact>
KVCAL_HD inline void round_trip(const CachedHead& head) {
  constexpr Signs kTaken = kSigns;  // device code takes no address of kSigns
  const int64_t whole = is_power_of_two(head.size) ? head.size : kBlock;
  const int64_t together = head.is_value || kIsCompact ? whole : kBlock;
  flip_signs(head.x, head.size, kTaken);
  rotate(head.x, head.size, together);
  if (head.is_value) {
    round_block<kValueBits>(head.x, head.size);
  } else if (kIsCompact) {
    round_block<3>(head.x, head.size);
  } else {
    for (int64_t i = 0; i < head.size; i += kBlock)
      if (i < head.rotated) {
        round_block<4>(head.x + i, kBlock);
      } else {
        round_block<3>(head.x + i, kBlock);
      }
  }
  rotate(head.x, head.size, together);
  flip_signs(head.x, head.size, kTaken);
}

/// Source: `OctaveFormat`.
constexpr CacheLayout layout_of(int value_bits, bool is_compact) {
  const SideLayout k{.bits = 3, .scale_bytes = 2, .multiple = kBlock};
  SideLayout blocks = k;
  blocks.block = kBlock;
  blocks.rotated_bits = 4;
  return {.k = is_compact ? k : blocks,
          .v = {.bits = value_bits, .scale_bytes = 2, .multiple = kBlock},
          .aligned = is_compact ? 4 : 8,
          .power_of_two = is_compact,
          .most = kMostSigns,
          .rotated_multiple = kBlock};
}

}  // namespace kvcal::cache_formats::octave

namespace kvcal::cache_formats {

namespace octave_k3v4 {
inline constexpr CacheLayout kLayout = octave::layout_of(4, false);
KVCAL_HD inline void round_trip(const CachedHead& head) {
  octave::round_trip<4, false>(head);
}
}  // namespace octave_k3v4

namespace octave_k3v3 {
inline constexpr CacheLayout kLayout = octave::layout_of(3, false);
KVCAL_HD inline void round_trip(const CachedHead& head) {
  octave::round_trip<3, false>(head);
}
}  // namespace octave_k3v3

namespace octave_k3v3_compact {
inline constexpr CacheLayout kLayout = octave::layout_of(3, true);
KVCAL_HD inline void round_trip(const CachedHead& head) {
  octave::round_trip<3, true>(head);
}
}  // namespace octave_k3v3_compact

}  // namespace kvcal::cache_formats
