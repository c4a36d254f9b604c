#pragma once

#include "kernels/gpu/half_words.h"

// Warp-level products of 16-bit float matrices, and asynchronous copies: instructions where
// KVCAL_HAS_WARP_MATRIX, simulated for the tests. Fragments have the layout of the PTX ISA
// (mma.m16n8k16, ldmatrix): with group = lane / 4 and pair = 2 · (lane % 4), a register of A holds
// row group or group + 8 and columns pair, pair + 1; a register of B holds rows pair, pair + 1 and
// column group.
namespace kvcal::gpu {

/// 16 × 16, row by row: {rows below 8, columns below 8}, {rows from 8, below 8}, {below 8, from
/// 8}, {from 8, from 8}.
struct FragmentA {
  uint32_t words[4];
};
/// 16 × 8: {rows below 8}, {rows from 8}.
struct FragmentB {
  uint32_t words[2];
};
/// 16 × 8 sums: {row group, columns pair, pair + 1}, {row group + 8, the same}.
struct FragmentC {
  float sums[4];
};

#if defined(KVCAL_GPU_SIMULATED)

inline float half_number(F16 value) {
  static const std::vector<float> table = [] {
    std::vector<float> numbers;
    for (uint32_t bits = 0; bits < 65536; ++bits)
      numbers.push_back(to_float(F16{static_cast<uint16_t>(bits)}));
    return numbers;
  }();
  return table[value.bits];
}
inline float half_number(BF16 value) {
  return to_float(value);
}

/// c += a · b; T is F16 or BF16.
template <class T>
inline void multiply_fragments(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  const uint32_t mine[6] = {a.words[0], a.words[1], a.words[2], a.words[3], b.words[0], b.words[1]};
  const auto& all = simulator::exchange(simulator::kMatrix, mine, 6);
  const auto half = [&](int lane, int word, int k) {
    return half_number(T{static_cast<uint16_t>(all[lane][word] >> (k % 2 * 16))});
  };
  const int group = lane() / 4, pair = lane() % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    const int row_half = i / 2, column = pair + i % 2;
    for (int k = 0; k < 16; ++k)
      c.sums[i] += half(group * 4 + k % 8 / 2, k / 8 * 2 + row_half, k) *
                   half(column * 4 + k % 8 / 2, 4 + k / 8, k);
  }
}

inline void load_matrices(uint32_t (&words)[4], const void* row, bool transposed) {
  uint32_t address[2];
  __builtin_memcpy(address, &row, 8);
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    simulator::stop("a row of a matrix is not aligned");
  const auto& all = simulator::exchange(simulator::kMatrix, address, 2);
  const auto element = [&](int matrix, int row_of, int column) {
    const uint16_t* at = nullptr;
    __builtin_memcpy(&at, all[matrix * 8 + row_of], 8);
    return static_cast<uint32_t>(at[column]);
  };
  const int group = lane() / 4, pair = lane() % 4 * 2;
  for (int i = 0; i < 4; ++i)
    words[i] = transposed ? element(i, pair, group) | element(i, pair + 1, group) << 16
                          : element(i, group, pair) | element(i, group, pair + 1) << 16;
}

inline uint32_t shared_address(const void* shared) {
  return simulator::shared_address(shared);
}
inline void copy_16_bytes(void* to, const void* from, bool exists) {
  simulator::start_copy(to, from, exists);
}
inline void await_copies() {
  simulator::finish_copies();
}
inline Pack<float, 4> load_global(const void* from) {
  return *static_cast<const Pack<float, 4>*>(from);
}

inline void store_shared(void* to, const Pack<uint32_t, 4>& words) {
  *static_cast<Pack<uint32_t, 4>*>(to) = words;
}

inline void spread_bytes(uint32_t four, uint32_t& low, uint32_t& high) {
  low = (four & 0xffu) << 8 | (four & 0xff00u) << 16;
  high = (four >> 16 & 0xffu) << 8 | (four & 0xff000000u);
}

#else

/// c += a · b; T is F16 or BF16.
template <class T>
__device__ inline void multiply_fragments(FragmentC& c, const FragmentA& a, const FragmentB& b) {
  if constexpr (std::is_same_v<T, F16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.sums[0]), "+f"(c.sums[1]), "+f"(c.sums[2]), "+f"(c.sums[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
          "r"(b.words[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.sums[0]), "+f"(c.sums[1]), "+f"(c.sums[2]), "+f"(c.sums[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
          "r"(b.words[1]));
}

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// Loads four 8 × 8 matrices of 16-bit elements: lane 8 i + r gives the address of row r of matrix
/// i, in shared memory and 16-byte aligned. Word i: row group and columns pair, pair + 1 of matrix
/// i; transposed: rows pair, pair + 1 and column group.
__device__ inline void load_matrices(uint32_t (&words)[4], const void* row, bool transposed) {
  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/// Copies from global to shared memory, both 16-byte aligned; writes zeros unless exists. Visible
/// to this thread after await_copies, to others after a barrier behind it.
__device__ inline void copy_16_bytes(void* to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
__device__ inline void await_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Loads from global memory, which the compiler does not see in a pointer from shared memory.
__device__ inline Pack<float, 4> load_global(const void* from) {
  Pack<float, 4> four;
  asm("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(four.values[0]), "=f"(four.values[1]), "=f"(four.values[2]), "=f"(four.values[3])
      : "l"(from));
  return four;
}

/// Stores to shared memory in one access.
__device__ inline void store_shared(void* to, const Pack<uint32_t, 4>& words) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)),
               "r"(words.values[0]), "r"(words.values[1]), "r"(words.values[2]),
               "r"(words.values[3])
               : "memory");
}

/// Moves four bytes to the upper halves of 16-bit words.
__device__ inline void spread_bytes(uint32_t four, uint32_t& low, uint32_t& high) {
  low = __byte_perm(four, 0, 0x1404);
  high = __byte_perm(four, 0, 0x3424);
}

#endif

/// FP8 codes in the upper halves of 16-bit words as F16, with the code's exponent bits: correct up
/// to a power of two. NaN stays NaN.
__device__ inline uint32_t halves_of_spread(uint32_t spread, fp8::Format format) {
  if (format == fp8::Format::kE5m2) return spread;
  const uint32_t halves = (spread & 0x80008000u) | (spread >> 1 & 0x3f803f80u);
  if (format == fp8::Format::kE4m3Fn)  // all ones: the carry sets the exponent's upper bit too
    return halves | (((halves & 0x7fff7fffu) + 0x00800080u) & 0x40004000u);
  // The codes of -0 are NaN: their sign, where the sum with the magnitude does not carry into it.
  const uint32_t nan = halves & ~((halves & 0x7fff7fffu) + 0x7fff7fffu) & 0x80008000u;
  return halves | (nan - (nan >> 6));
}
/// Four FP8 codes as F16, correct up to the power of two in code_power. NaN stays NaN.
__device__ inline void halves_of_codes(uint32_t four, fp8::Format format, uint32_t& low,
                                       uint32_t& high) {
  if (decodes_by_chip(format)) return decode_codes_by_chip(four, format, low, high);
  spread_bytes(four, low, high);
  low = halves_of_spread(low, format);
  high = halves_of_spread(high, format);
}
/// Factor from the results of halves_of_codes to the codes' values.
__device__ inline float code_power(fp8::Format format) {
  if (decodes_by_chip(format)) return 1.0f;
  return format == fp8::Format::kE4m3Fn ? 256.0f : format == fp8::Format::kE4m3Fnuz ? 128.0f : 1.0f;
}

}  // namespace kvcal::gpu
