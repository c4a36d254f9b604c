#pragma once

#include "quant/cache_formats/hadamard.h"
#include "quant/cache_formats/steps.h"

/// TurboQuant: K has the nearest values of a codebook for its rotated direction and its length in
/// float16, or E4M3 codes without a scale; V has evenly spaced codes with a step and an offset in
/// float16. Source, run: vLLM 0.33 v1/attention/ops/triton_turboquant_store.py; reads:
/// triton_turboquant_decode.py `_tq_decode_stage1`, whose products with rotated queries equal
/// rotating K back. The engine's rotation is a matrix product, whose order of sums is open: K is
/// equal within float32's rounding, V bit for bit. The engine also reads K and V of a prompt before
/// they are stored, which is not simulated.
namespace kvcal::cache_formats::turboquant {

/// The positive half of the codebook of unit vectors: the best values for a normal distribution of
/// variance 1 / size. Those of 4 · size are half as large, exactly.
struct Codebook {
  float values[8];
};
template <int kBits>
KVCAL_HD constexpr Codebook codebook_of(int64_t size) {
  static_assert(kBits == 3 || kBits == 4);
  constexpr Codebook kThree64{{0x1.f5b9f6p-6f, 0x1.82e3f8p-4f, 0x1.57daa6p-3f, 0x1.133ea8p-2f}};
  constexpr Codebook kThree128{{0x1.62c62ep-6f, 0x1.1192aap-4f, 0x1.e6487ap-4f, 0x1.85413ep-3f}};
  constexpr Codebook kFour64{{0x1.070514p-6f, 0x1.8d73fep-5f, 0x1.50529p-4f, 0x1.e28894p-4f,
                              0x1.419a18p-3f, 0x1.9e2d8p-3f, 0x1.08c2ep-2f, 0x1.5d8edcp-2f}};
  constexpr Codebook kFour128{{0x1.73f75cp-7f, 0x1.190ab2p-5f, 0x1.dba1c2p-5f, 0x1.5533e4p-4f,
                               0x1.c6d056p-4f, 0x1.24de2ep-3f, 0x1.766dcep-3f, 0x1.ee5988p-3f}};
  float factor = 1.0f;
  for (; size < 64; size *= 4) factor *= 2.0f;
  for (; size > 128; size /= 4) factor *= 0.5f;
  Codebook book =
      kBits == 3 ? (size == 64 ? kThree64 : kThree128) : (size == 64 ? kFour64 : kFour128);
  for (float& value : book.values) value *= factor;
  return book;
}

/// Value i of [0, 2^kBits), ascending.
template <int kBits>
KVCAL_HD constexpr float value_of(const Codebook& book, int i) {
  constexpr int kHalf = 1 << (kBits - 1);
  return i < kHalf ? -book.values[kHalf - 1 - i] : book.values[i - kHalf];
}

/// The nearest value; the larger one of two.
template <int kBits>
KVCAL_HD constexpr float nearest_value(const Codebook& book, float x) {
  int index = 0;
  for (int i = 0; i + 1 < 1 << kBits; ++i)
    if (x >= (value_of<kBits>(book, i) + value_of<kBits>(book, i + 1)) / 2.0f) index = i + 1;
  return value_of<kBits>(book, index);
}

template <int kBits>
KVCAL_HD inline void round_key(float* x, int64_t size) {
  const auto length = static_cast<float>(::sqrt(squares_of(x, size)));
  const float divisor = length + 1e-8f, norm = norm_of(size);
  for (int64_t i = 0; i < size; ++i) x[i] = x[i] / divisor;
  transform(x, size);
  multiply(x, size, norm);
  const Codebook book = codebook_of<kBits>(size);
  for (int64_t i = 0; i < size; ++i) x[i] = nearest_value<kBits>(book, x[i]);
  const auto squares = static_cast<float>(squares_of(x, size));
  multiply(x, size, 1.0f / ::sqrtf(squares + 1e-16f));
  multiply(x, size, through_f16(length));
  transform(x, size);
  multiply(x, size, norm);
}

template <int kBits>
KVCAL_HD constexpr void round_value(float* x, int64_t size) {
  constexpr auto kMost = static_cast<float>((1 << kBits) - 1);
  float least = x[0], most = x[0];
  for (int64_t i = 1; i < size; ++i) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
  }
  const float range = (most - least) / kMost;
  const float step = range > 1e-8f ? range : 1e-8f;
  const float stored_step = through_f16(step), stored_least = through_f16(least);
  for (int64_t i = 0; i < size; ++i) {
    const float code = nearest_away((x[i] - least) / step, 0.0f, kMost);
    x[i] = code * stored_step + stored_least;
  }
}

template <int kKeyBits, int kValueBits>
KVCAL_HD inline void round_trip(const CachedHead& head) {
  if (head.is_value) return round_value<kValueBits>(head.x, head.size);
  if constexpr (kKeyBits == 8) {
    for (int64_t i = 0; i < head.size; ++i) head.x[i] = through_e4m3(head.x[i]);
  } else {
    round_key<kKeyBits>(head.x, head.size);
  }
}

/// Source: `TurboQuantConfig`, `get_boundary_skip_layers`. A slot has an even number of bytes.
constexpr CacheLayout layout_of(int key_bits, int value_bits) {
  const bool is_rotated = key_bits != 8;
  return {.k = {.bits = key_bits, .scale_bytes = is_rotated ? 2 : 0},
          .v = {.bits = value_bits, .scale_bytes = 4, .multiple = value_bits == 3 ? 8 : 2},
          .aligned = 2,
          .power_of_two = is_rotated,
          .least = is_rotated ? 16 : 2,
          .most = kMostSigns,
          .plain_layers = 2};
}

}  // namespace kvcal::cache_formats::turboquant

namespace kvcal::cache_formats {

namespace turboquant_k8v4 {
inline constexpr CacheLayout kLayout = turboquant::layout_of(8, 4);
KVCAL_HD inline void round_trip(const CachedHead& head) {
  turboquant::round_trip<8, 4>(head);
}
}  // namespace turboquant_k8v4

namespace turboquant_4bit_nc {
inline constexpr CacheLayout kLayout = turboquant::layout_of(4, 4);
KVCAL_HD inline void round_trip(const CachedHead& head) {
  turboquant::round_trip<4, 4>(head);
}
}  // namespace turboquant_4bit_nc

namespace turboquant_k3v4_nc {
inline constexpr CacheLayout kLayout = turboquant::layout_of(3, 4);
KVCAL_HD inline void round_trip(const CachedHead& head) {
  turboquant::round_trip<3, 4>(head);
}
}  // namespace turboquant_k3v4_nc

namespace turboquant_3bit_nc {
inline constexpr CacheLayout kLayout = turboquant::layout_of(3, 3);
KVCAL_HD inline void round_trip(const CachedHead& head) {
  turboquant::round_trip<3, 3>(head);
}
}  // namespace turboquant_3bit_nc

}  // namespace kvcal::cache_formats
