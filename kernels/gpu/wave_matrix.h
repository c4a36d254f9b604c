#pragma once

#include "kernels/gpu/half_words.h"

// Products of bfloat16 matrices by a wavefront of 64 lanes: instructions of AMD's CDNA chips
// (has_wave_matrix in chips.h), simulated for the tests. All matrices are 16 × 16. With column =
// lane % 16 and quad = lane / 16, a lane holds of A row `column` and columns 4 quad to 4 quad + 3,
// of B column `column` and rows 4 quad to 4 quad + 3, of sums column `column` and rows 4 quad to 4
// quad + 3. So sums, rounded, are a B. Source: AMD Instinct MI200 instruction set reference.
namespace kvcal::gpu {

constexpr int kWave = 64;
__device__ inline int wave() {
  return static_cast<int>(threadIdx.x) / kWave;
}
__device__ inline int wave_column() {
  return static_cast<int>(threadIdx.x) % 16;
}
__device__ inline int wave_quad() {
  return static_cast<int>(threadIdx.x) % kWave / 16;
}

/// Four elements.
struct alignas(8) WaveHalves {
  uint32_t words[2];
};
struct WaveSums {
  float sums[4];
};

#if defined(KVCAL_GPU_SIMULATED)
#define KVCAL_CHIP_HAS_WAVE_MATRIX 1

/// c += a · b
inline void multiply_wave(WaveSums& c, const WaveHalves& a, const WaveHalves& b) {
  const uint32_t mine[4] = {a.words[0], a.words[1], b.words[0], b.words[1]};
  const auto& all = simulator::exchange_in_wave(simulator::kMatrix, mine, 4);
  const auto element = [&](int side, int outer, int k) {
    const uint32_t word = all[outer + k / 4 * 16][2 * side + k % 4 / 2];
    return to_float(BF16{static_cast<uint16_t>(word >> (k % 2 * 16))});
  };
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k)
      c.sums[i] += element(0, 4 * wave_quad() + i, k) * element(1, wave_column(), k);
}

/// Value of the lane whose number differs by the bits of mask. All 64 lanes must take part.
inline float wave_xor(float value, int mask) {
  const uint32_t word = bits_of(value);
  const auto& all = simulator::exchange_in_wave(simulator::kShuffle, &word, 1);
  return float_of(all[(static_cast<int>(threadIdx.x) % kWave) ^ mask][0]);
}

#else
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || \
    defined(__gfx950__)
#define KVCAL_CHIP_HAS_WAVE_MATRIX 1
#else
#define KVCAL_CHIP_HAS_WAVE_MATRIX 0
#endif

/// c += a · b
__device__ inline void multiply_wave([[maybe_unused]] WaveSums& c,
                                     [[maybe_unused]] const WaveHalves& a,
                                     [[maybe_unused]] const WaveHalves& b) {
#if KVCAL_CHIP_HAS_WAVE_MATRIX
  using Sums = float __attribute__((ext_vector_type(4)));
  using Halves = short __attribute__((ext_vector_type(4)));
  const Sums sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Halves, a),
                                                              __builtin_bit_cast(Halves, b),
                                                              __builtin_bit_cast(Sums, c), 0, 0, 0);
  c = __builtin_bit_cast(WaveSums, sums);
#endif
}

/// Value of the lane whose number differs by the bits of mask. All 64 lanes must take part.
__device__ inline float wave_xor(float value, int mask) {
  return __shfl_xor(value, mask, kWave);
}

#endif

}  // namespace kvcal::gpu
