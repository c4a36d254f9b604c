#pragma once

#include "kernels/gpu/matrix_tiles.h"
#include "kernels/gpu/warp_matrix.h"

// Loads queries, keys and values as 16-bit tiles into shared memory for matrix instructions.
namespace kvcal::gpu {

/// Shared memory of a block, and its loads.
template <class Tiles>
class MatrixStore {
 public:
  using Kv = typename Tiles::Element;
  using Half = typename Tiles::Half;

  __device__ __forceinline__ MatrixStore(const DeviceAttention& args, const BlockRows& rows,
                                         std::byte* shared)
      : args_(args), rows_(rows) {
    q = reinterpret_cast<uint16_t*>(shared);
    k = q + Tiles::kQueryParts * Tiles::kQueryElements;
    v = k + Tiles::kBuffers * Tiles::kKeyParts * Tiles::kTileElements;
    staged_ = reinterpret_cast<std::byte*>(v + (v - k));
    unscale = reinterpret_cast<float*>(staged_ + 2 * Tiles::kStagedBytes);
    last_seen = reinterpret_cast<int*>(unscale + Tiles::kRows);
    has_nonfinite = last_seen + Tiles::kRows;
    sides_ = reinterpret_cast<SideRows*>(has_nonfinite + 4);
  }

  /// Call before the copies; the block waits.
  __device__ __forceinline__ void start() {
    if (threadIdx.x < 2) {
      const bool is_value = threadIdx.x == 1;
      const int64_t width = (is_value ? args_.v_head_dim : args_.head_dim) * kBytes;
      const int64_t row = args_.kv_heads * width;
      const auto* from = static_cast<const std::byte*>(is_value ? args_.v : args_.k);
      sides_[threadIdx.x] = {from + rows_.segment.kv_begin * row + rows_.kv_head * width,
                             static_cast<uint32_t>(row), static_cast<int>(rows_.segment.kv_count)};
    }
    __syncthreads();
  }

  uint16_t *q, *k, *v;  ///< parts of [rows or keys, kDim]
  float* unscale;       ///< [rows]: factor that restores a query's size
  int* last_seen;       ///< [rows]: last key that a query sees; -1 without a query
  int* has_nonfinite;   ///< zero where nothing is observed

  /// Loads queries in parts. Each row is scaled by the power of two that brings its largest
  /// element's exponent to kQueryExponent.
  __device__ __forceinline__ void load_queries() {
    if (threadIdx.x == 0) *has_nonfinite = 0;
    for (int row = warp(); row < Tiles::kRows; row += kThreads / kWarp) {
      float values[kQueryWords][2];
      uint32_t largest = 0;
      KVCAL_UNROLL
      for (int i = 0; i < kQueryWords; ++i) {
        query_pair(args_, rows_, row, 2 * (lane() + i * kWarp), values[i]);
        KVCAL_UNROLL
        for (int e = 0; e < 2; ++e) largest = larger(largest, bits_of(values[i][e]) & 0x7fffffffu);
      }
      for (int mask = kWarp / 2; mask > 0; mask /= 2)
        largest = larger(largest, shuffle_xor(largest, mask));
      const uint32_t wanted = 254u + Tiles::kQueryExponent;
      const uint32_t exponent = smaller(largest >> 23, wanted - 1);
      const bool is_finite_row = largest < 0x7f800000u;
      const uint32_t field = is_finite_row ? smaller(wanted - exponent, 253u) : 127u;
      if (lane() == 0) {
        unscale[row] = float_of((254u - field) << 23);
        last_seen[row] = row < rows_.count ? static_cast<int>(rows_.position(row)) : -1;
      }
      KVCAL_UNROLL
      for (int i = 0; i < kQueryWords; ++i) {
        const int word = lane() + i * kWarp;
        if (word >= kDim / 2) continue;
        const float scale = float_of(field << 23);
        put_parts<Tiles::kQueryParts>(q + Tiles::query_at(row, word / 4) + word % 4 * 2,
                                      Tiles::kQueryElements, values[i][0] * scale,
                                      values[i][1] * scale);
      }
    }
    __syncthreads();
  }

  /// Starts the copy of a tile of 16-bit keys (side 0) or values (1).
  __device__ __forceinline__ void copy_tile(uint16_t* to, int side, int tile) const {
    for_each_chunk<kDim / 8>(side, tile, [&](int key, int chunk, const void* at, bool exists) {
      copy_16_bytes(to + Tiles::at(key, chunk), at, exists);
    });
  }

  /// Starts the copy of a tile's codes.
  __device__ __forceinline__ void copy_codes(int tile) const {
    constexpr int kChunks = kDim / 16;
    KVCAL_UNROLL
    for (int side = 0; side < 2; ++side)
      for_each_chunk<kChunks>(side, tile, [&](int key, int chunk, const void* at, bool exists) {
        const int index = (side * kMatrixKeys + key) * kChunks + chunk;
        copy_16_bytes(staged_ + index * 16, at, exists);
      });
  }
  /// Converts copied codes to tiles.
  __device__ __forceinline__ void spread_codes() const {
    constexpr int kChunks = kDim / 16;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kMatrixKeys * kChunks; i += kThreads) {
      uint16_t* tile = i >= kMatrixKeys * kChunks ? v : k;
      const int key = i / kChunks % kMatrixKeys, chunk = i % kChunks;
      put_16_codes(tile, key, chunk, *reinterpret_cast<const Codes*>(staged_ + i * 16));
    }
  }

  /// 16 codes of a key.
  using Codes = Pack<uint32_t, 4>;
  static constexpr int kCodesOfThread = kMatrixKeys * Tiles::kWidth / 16 / Tiles::kThreads;
  /// Loads this thread's codes of a tile, and converts them to a tile.
  __device__ __forceinline__ void load_codes(Codes (&codes)[kCodesOfThread], int side,
                                             int tile) const {
    int n = 0;
    for_each_chunk<kDim / 16>(side, tile, [&](int, int, const void* at, bool exists) {
      Codes loaded{};
      if (exists) loaded = __builtin_bit_cast(Codes, load_global(at));
      codes[n++] = loaded;
    });
  }
  __device__ __forceinline__ void put_codes(const Codes (&codes)[kCodesOfThread],
                                            uint16_t* to) const {
    int n = 0;
    for_each_chunk<kDim / 16>(0, 0, [&](int key, int chunk, const void*, bool) {
      put_16_codes(to, key, chunk, codes[n++]);
    });
  }

  /// Loads a tile of float32 keys or values in parts.
  __device__ __forceinline__ void split_tile(uint16_t* to, int side, int tile) const {
    for_each_chunk<kDim / 4>(side, tile, [&](int key, int chunk, const void* from, bool exists) {
      Pack<float, 4> four{};
      if (exists) four = load_global(from);
      uint16_t* at = to + Tiles::at(key, chunk / 2) + chunk % 2 * 4;
      put_parts<Tiles::kKeyParts>(at, Tiles::kTileElements, four.values[0], four.values[1]);
      put_parts<Tiles::kKeyParts>(at + 2, Tiles::kTileElements, four.values[2], four.values[3]);
    });
  }

  __device__ static bool is_nonfinite(uint32_t half) {
    constexpr uint32_t kExponent = std::is_same_v<Half, F16> ? 0x7c00u : 0x7f80u;
    return (half & kExponent) == kExponent;
  }
  /// Sets has_nonfinite where this thread's share of the values holds infinity or NaN.
  __device__ __forceinline__ void look_for_nonfinite_values(const uint16_t* v) const {
    for (int i = static_cast<int>(threadIdx.x); i < kMatrixKeys * kDim / 8; i += kThreads) {
      const auto eight = *reinterpret_cast<const Pack<uint32_t, 4>*>(
          v + Tiles::at(i / (kDim / 8), i % (kDim / 8)));
      for (const uint32_t word : eight.values)
        if (is_nonfinite(word) || is_nonfinite(word >> 16)) *has_nonfinite = 1;
    }
  }
  /// Replaces infinity and NaN by 0.
  __device__ __forceinline__ void clear_nonfinite_values(uint16_t* v) const {
    if (threadIdx.x == 0) *has_nonfinite = 0;
    uint32_t* words = reinterpret_cast<uint32_t*>(v);
    for (int i = static_cast<int>(threadIdx.x); i < Tiles::kKeyParts * Tiles::kTileElements / 2;
         i += kThreads)
      words[i] = (is_nonfinite(words[i]) ? 0u : words[i] & 0xffffu) |
                 (is_nonfinite(words[i] >> 16) ? 0u : words[i] & 0xffff0000u);
  }

  /// Factor from the elements in shared memory to the stored ones.
  __device__ static float power_of_tiles() {
    if constexpr (Tiles::kHasCodes) return code_power(CodesOf<Kv>::kFormat);
    return 1.0f;
  }

 private:
  static constexpr int kBytes = sizeof(Kv), kDim = Tiles::kWidth, kThreads = Tiles::kThreads;
  /// Rows of K or V of the block's head. In shared memory, because the registers are full.
  struct alignas(16) SideRows {
    const std::byte* first;  ///< of the segment's first key
    uint32_t bytes;          ///< from a key to the next
    int count;
  };
  static constexpr int kQueryWords = (kDim / 2 + kWarp - 1) / kWarp;

  /// Calls body(key, chunk, address, exists) for this thread's chunks of 16 bytes of a tile;
  /// kChunks make a row. Addresses of chunks that do not exist are the first row's.
  template <int kChunks, class Body>
  __device__ __forceinline__ void for_each_chunk(int side, int tile, const Body& body) const {
    const SideRows rows = sides_[side];
    const auto dim = static_cast<int>(side == 0 ? args_.head_dim : args_.v_head_dim);
    const auto visit = [&](int key, int chunk, const std::byte* at, bool is_key) {
      const bool exists = is_key && chunk * (16 / kBytes) < dim;
      body(key, chunk, exists ? at : rows.first, exists);
    };
    const auto address = [&](int key, int chunk) {
      return rows.first + static_cast<uint64_t>(static_cast<uint32_t>(tile + key)) * rows.bytes +
             chunk * 16;
    };
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kThreads % kChunks == 0) {  // a thread has one column: its addresses step
      constexpr int kStep = kThreads / kChunks;
      const ChunkPlace place = Tiles::template first_chunk<kChunks>(thread);
      const int first = place.key, chunk = place.chunk;
      const std::byte* at = address(first, chunk);
      KVCAL_UNROLL
      for (int n = 0; n < kMatrixKeys / kStep; ++n) {
        visit(first + n * kStep, chunk, at, tile + first + n * kStep < rows.count);
        at += uint64_t{kStep} * rows.bytes;
      }
    } else {
      for (int i = thread; i < kMatrixKeys * kChunks; i += kThreads) {
        const int key = i / kChunks, chunk = i % kChunks;
        visit(key, chunk, address(key, chunk), tile + key < rows.count);
      }
    }
  }
  __device__ __forceinline__ static void put_16_codes(uint16_t* tile, int key, int chunk,
                                                      Codes codes) {
    KVCAL_UNROLL
    for (int half = 0; half < 2; ++half) {
      Pack<uint32_t, 4> halves;
      KVCAL_UNROLL
      for (int w = 0; w < 2; ++w)
        halves_of_codes(codes.values[2 * half + w], CodesOf<Kv>::kFormat, halves.values[2 * w],
                        halves.values[2 * w + 1]);
      store_shared(tile + Tiles::at(key, 2 * chunk + half), halves);
    }
  }
  /// Rounds two neighbours, and returns their remainders.
  template <int kParts>
  __device__ __forceinline__ static void put_parts(uint16_t* at, int part_elements, float first,
                                                   float second) {
    const uint32_t rounded = pair_of<Half>(first, second);
    *reinterpret_cast<uint32_t*>(at) = rounded;
    if constexpr (kParts == 2)
      *reinterpret_cast<uint32_t*>(at + part_elements) = remainders_of(rounded, first, second);
  }

  const DeviceAttention& args_;
  const BlockRows& rows_;
  std::byte* staged_;
  SideRows* sides_;  ///< of K and of V
};

}  // namespace kvcal::gpu
