// Products of bfloat16 matrices by a wavefront of 64 lanes: instructions of AMD's CDNA chips
// (has_wave_matrix in chips.h), simulated for the tests. All matrices are 16 × 16. With column =
// lane % 16 and quad = lane / 16, a lane holds of A row `column` and columns 4 quad to 4 quad + 3,
// of B column `column` and rows 4 quad to 4 quad + 3, of sums column `column` and rows 4 quad to 4
// quad + 3. So sums, rounded, are a B. Source: AMD Instinct MI200 instruction set reference.
// Tiles of keys and values in shared memory for the matrix instructions of wavefronts.

#pragma once

#include "kernels/gpu/attention.h"
#include "kernels/gpu/half_words.h"

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

constexpr int kWaveThreads = 256;  ///< of a block, which is four wavefronts

/// Sizes, and places in shared memory: keys as rows, values as columns, so that a lane reads four
/// elements of a product's depth at once. Four elements between rows let lanes use different banks.
/// All products are in bfloat16, as sums of two parts where elements need them, without the product
/// of the two smaller parts: gfx90a takes subnormal float16 for 0, which codes of FP8 would be.
template <class Kv, int kDim>
struct WaveTiles {
  static constexpr int kQueryParts = 2;
  /// bfloat16 holds codes of FP8, too.
  static constexpr int kKeyParts = std::is_same_v<Kv, float> || std::is_same_v<Kv, F16> ? 2 : 1;
  static constexpr int kQueryTiles = kDim <= 128 ? 2 : 1;  ///< of 16 queries, to a wave
  static constexpr unsigned kThreads = kWaveThreads;
  static constexpr int kRows = kWaveThreads / kWave * 16 * kQueryTiles;
  static constexpr int kPad = 4;

  /// So that registers hold scores and sums, and two blocks share the 64 KiB of a compute unit.
  static constexpr int kMostKeys = (kDim <= 64 ? 64 : kDim <= 128 ? 32 : 16) / kKeyParts;
  static constexpr int kKeys = kMostKeys < 16 ? 16 : kMostKeys;
  static constexpr int kKeyElements = kKeys * (kDim + kPad);    ///< of a part of K
  static constexpr int kValueElements = kDim * (kKeys + kPad);  ///< of a part of V
  static constexpr size_t kSharedBytes =
      size_t{2} * kKeyParts * (kKeyElements + kValueElements) + 16;

  __device__ static int key_at(int key, int d) { return key * (kDim + kPad) + d; }
  __device__ static int value_at(int d, int key) { return d * (kKeys + kPad) + key; }
};

/// Moves tiles of K and V from the cache to shared memory: load reads into registers, so that it
/// runs beside the products of the tile before.
template <class Kv, int kDim>
class WaveLoader {
 public:
  using Tiles = WaveTiles<Kv, kDim>;

  __device__ __forceinline__ WaveLoader(const DeviceAttention& args, const BlockRows& rows,
                                        uint16_t* k, uint16_t* v)
      : args_(args), rows_(rows), k_(k), v_(v) {}

  __device__ __forceinline__ void load(int tile) {
    KVCAL_UNROLL
    for (int u = 0; u < kUnitsOfThread; ++u) {
      const Place place = place_of(u);
      const bool is_value = place.side == 1;
      const int64_t dim = is_value ? args_.v_head_dim : args_.head_dim;
      const auto* from = static_cast<const Kv*>(is_value ? args_.v : args_.k) +
                         rows_.kv_head * dim + place.chunk * 8;
      KVCAL_UNROLL
      for (int key = 0; key < 4; ++key) {
        const int64_t at = tile + place.key + key;
        const bool exists = place.exists && place.chunk * 8 < dim && at < rows_.segment.kv_count;
        KVCAL_UNROLL
        for (int part = 0; part < kVectors; ++part) {
          Vector loaded{};
          if (exists)
            loaded = *reinterpret_cast<const Vector*>(
                from + (rows_.segment.kv_begin + at) * args_.kv_heads * dim + part * kVector);
          units_[u][key][part] = loaded;
        }
      }
    }
  }

  __device__ __forceinline__ void store() const {
    KVCAL_UNROLL
    for (int u = 0; u < kUnitsOfThread; ++u) {
      const Place place = place_of(u);
      if (!place.exists) continue;
      uint32_t words[4][Tiles::kKeyParts][4];
      KVCAL_UNROLL
      for (int key = 0; key < 4; ++key) halves_of(units_[u][key], words[key]);
      KVCAL_UNROLL
      for (int part = 0; part < Tiles::kKeyParts; ++part) {
        if (place.side == 0)
          store_keys(place, part, words);
        else
          store_values(place, part, words);
      }
    }
  }

 private:
  static constexpr int kVector = sizeof(Kv) == 4 ? 4 : 8, kVectors = 8 / kVector;
  using Vector = Pack<Kv, kVector>;
  struct Words8 {
    uint32_t words[2 * sizeof(Kv)];
  };
  /// A unit is eight elements of four keys, or of four values.
  static constexpr int kChunks = kDim / 8, kUnits = Tiles::kKeys / 4 * kChunks;
  static constexpr int kUnitsOfThread = (2 * kUnits + kWaveThreads - 1) / kWaveThreads;

  struct Place {
    int side, key, chunk;
    bool exists;
  };
  __device__ __forceinline__ static Place place_of(int u) {
    const int index = static_cast<int>(threadIdx.x) + u * kWaveThreads;
    const int unit = index % kUnits;
    return {index / kUnits, unit / kChunks * 4, unit % kChunks, index < 2 * kUnits};
  }

  using Words = uint32_t[4][Tiles::kKeyParts][4];
  __device__ __forceinline__ void store_keys(const Place& place, int part,
                                             const Words& words) const {
    KVCAL_UNROLL
    for (int key = 0; key < 4; ++key) {
      uint16_t* to =
          k_ + part * Tiles::kKeyElements + Tiles::key_at(place.key + key, place.chunk * 8);
      KVCAL_UNROLL
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<WaveHalves*>(to + 4 * half) = {
            {words[key][part][2 * half], words[key][part][2 * half + 1]}};
    }
  }
  __device__ __forceinline__ void store_values(const Place& place, int part,
                                               const Words& words) const {
    const auto half = [&](int key, int d) {
      return words[key][part][d / 2] >> (d % 2 * 16) & 0xffffu;
    };
    KVCAL_UNROLL
    for (int d = 0; d < 8; ++d)
      *reinterpret_cast<WaveHalves*>(v_ + part * Tiles::kValueElements +
                                     Tiles::value_at(place.chunk * 8 + d, place.key)) = {
          {half(0, d) | half(1, d) << 16, half(2, d) | half(3, d) << 16}};
  }

  /// Eight elements in parts.
  __device__ __forceinline__ static void halves_of(const Vector (&eight)[kVectors],
                                                   uint32_t (&words)[Tiles::kKeyParts][4]) {
    constexpr int kOfWord = 4 / sizeof(Kv);
    const auto loaded = __builtin_bit_cast(Words8, eight);
    float numbers[8 / kOfWord][kOfWord];
    KVCAL_UNROLL
    for (int w = 0; w < 8 / kOfWord; ++w) numbers_of_word(loaded.words[w], numbers[w], Kv{});
    KVCAL_UNROLL
    for (int w = 0; w < 4; ++w) {
      const float first = numbers[2 * w / kOfWord][2 * w % kOfWord];
      const float second = numbers[(2 * w + 1) / kOfWord][(2 * w + 1) % kOfWord];
      if constexpr (Tiles::kKeyParts == 1) {  // exact
        words[0][w] = bits_of(first) >> 16 | (bits_of(second) & 0xffff0000u);
      } else {
        words[0][w] = pair_of<BF16>(first, second);
        words[1][w] = remainders_of(words[0][w], first, second);
      }
    }
  }

  const DeviceAttention& args_;
  const BlockRows& rows_;
  uint16_t *k_, *v_;
  Vector units_[kUnitsOfThread][4][kVectors];
};

}  // namespace kvcal::gpu
