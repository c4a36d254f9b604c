// Access to rows: each thread takes four neighbouring elements at a time. The assignment does not
// depend on alignment, so neither do the bytes of a sum.
// float32 functions of one number. None overflows where its result does not.

#pragma once

#include <span>
#include <vector>

#include "kernels/gpu/device.h"

namespace kvcal::gpu {

using Four = Pack<float, 4>;

/// First `left` float32 elements at x, up to four; then zeros. With kAligned there are four, at a
/// 16-byte address.
template <bool kAligned>
__device__ inline Four load_four(const float* x, int64_t left) {
  if constexpr (kAligned) {
    (void)left;
    return *reinterpret_cast<const Four*>(x);
  } else {
    Four four{};
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j)
      if (j < left) four.values[j] = x[j];
    return four;
  }
}

/// The same of bfloat16; kAligned: at an 8-byte address.
template <bool kAligned>
__device__ inline Four load_four(const BF16* x, int64_t left) {
  Pack<BF16, 4> loaded{};
  if constexpr (kAligned) {
    (void)left;
    loaded = *reinterpret_cast<const Pack<BF16, 4>*>(x);
  } else {
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j)
      if (j < left) loaded.values[j] = x[j];
  }
  Four four;
  KVCAL_UNROLL
  for (int j = 0; j < 4; ++j) four.values[j] = to_float(loaded.values[j]);
  return four;
}

/// Writes four elements, or the first `left` of them, and returns them rounded.
template <bool kAligned, class T>
__device__ inline Pack<T, 4> store_four(T* out, const Four& four, int64_t left) {
  Pack<T, 4> rounded;
  KVCAL_UNROLL
  for (int j = 0; j < 4; ++j) rounded.values[j] = element_of<T>(four.values[j]);
  if constexpr (kAligned) {
    *reinterpret_cast<Pack<T, 4>*>(out) = rounded;
  } else {
    KVCAL_UNROLL
    for (int j = 0; j < 4; ++j)
      if (j < left) out[j] = rounded.values[j];
  }
  return rounded;
}
/// Folds what store_four wrote into seen. By reference: a pointer would keep it in local memory.
template <bool kAligned, class T>
__device__ inline void see_four(const Pack<T, 4>& written, int64_t left, ThreadAmax& seen) {
  KVCAL_UNROLL
  for (int j = 0; j < 4; ++j)
    if (kAligned || j < left) seen.see(to_float(written.values[j]));
}

/// fold_seen with one access to the slot per block, because all blocks share it.
__device__ inline void fold_seen_of_block(const AmaxSlot& slot, const ThreadAmax& seen) {
  if (!slot.amax) return;
  const unsigned nonfinite = warp_count(seen.nonfinite);
  if (lane() == 0 && nonfinite > 0) add_count(slot.nonfinite, nonfinite);
  const float amax = block_max(seen.amax);
  // A stale value read here only costs an extra atomic operation.
  if (threadIdx.x == 0 && amax > *static_cast<const volatile float*>(slot.amax))
    fold_amax(slot.amax, amax);
}

/// Whether groups of four can be accessed at pointer and at every multiple of stride after it.
template <class T>
bool holds_fours(const T* pointer, int64_t stride = 0) {
  return is_aligned(pointer, 4 * sizeof(T)) && stride % 4 == 0;
}
inline bool holds_fours(ComputeType type, const void* pointer) {
  return is_aligned(pointer, 4 * bytes_of(type));
}

/// Piece `index` of rows that are cut into `pieces` each.
struct Place {
  int64_t row = 0;
  int64_t piece = 0;
};
__device__ inline Place place_of(int64_t index, int64_t pieces) {
  if (index < (int64_t{1} << 32) && pieces < (int64_t{1} << 32)) {
    const auto small = static_cast<unsigned>(index), by = static_cast<unsigned>(pieces);
    const unsigned row = small / by;  // several times as fast as with 64 bits
    return {row, small - row * by};
  }
  return {index / pieces, index % pieces};
}

/// A block a row, of as many threads as the pieces of a row alone ask for.
inline Launch row_launch(Stream& stream, int64_t rows, int64_t pieces_of_row) {
  constexpr int64_t kMostThreads = 1024;
  const int64_t threads = smaller(kMostThreads, ceil_div(pieces_of_row, int64_t{kWarp}) * kWarp);
  return {.stream = stream, .blocks = rows, .threads = static_cast<unsigned>(threads)};
}

/// Divides the rows of segments, of so many elements each, into chunks for blocks: "q" is a range
/// of elements, "kv" the segment's number and its elements before the chunk.
inline std::vector<Segment> chunks_of(std::span<const Segment> segments, int64_t width,
                                      int64_t chunk) {
  std::vector<Segment> chunks;
  for (size_t s = 0; s < segments.size(); ++s) {
    const int64_t count = segments[s].q_count * width;
    for (int64_t first = 0; first < count; first += chunk)
      chunks.push_back({.q_begin = segments[s].q_begin * width + first,
                        .q_count = smaller(chunk, count - first),
                        .kv_begin = static_cast<int64_t>(s),
                        .kv_count = first});
  }
  return chunks;
}

/// Calls body(i) for this thread's share of the pieces, in a launch by GpuBackend::on_pieces.
template <class Body>
__device__ inline void for_pieces(int64_t pieces, const Body& body) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < pieces; i += step) body(i);
}

__device__ inline float logistic(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ inline float softplus(float x) {
  // fmaxf would lose a NaN.
  return (x < 0.0f ? 0.0f : x) + log1pf(expf(-magnitude_of(x)));
}
/// Factor that a gate gives.
__device__ inline float gate_of(GateFunction function, float gate) {
  if (function == GateFunction::kIdentity) return gate;
  if (function == GateFunction::kSoftplus)
    return (gate < 0.0f ? 0.0f : gate) + log1pf(expf(-fabsf(gate)));  // NaN stays NaN
  const float opened = logistic(gate);
  return function == GateFunction::kSilu ? gate * opened : opened;
}

/// Source: torch.nn.functional silu, gelu (approximate "none" and "tanh") and relu; xIELU: see
/// ActivationFunction.
template <Activation kActivation>
__device__ inline float activated(float x, const ActivationFunction& function) {
  if constexpr (kActivation == Activation::kSilu) return x * logistic(x);
  if constexpr (kActivation == Activation::kGelu)
    return 0.5f * x * erfcf(-0.70710678118654752f * x);
  if constexpr (kActivation == Activation::kGeluTanh) {
    // (1 + tanh(y)) / 2 is logistic(2 y), without the difference that loses digits for negative y.
    const float inner = 1.5957691216057308f * (x + 0.044715f * x * x * x);  // 2 sqrt(2 / pi)
    return x * logistic(inner);
  }
  if constexpr (kActivation == Activation::kQuickGelu) return x * logistic(1.702f * x);
  if constexpr (kActivation == Activation::kRelu) return x < 0.0f ? 0.0f : x;
  if constexpr (kActivation == Activation::kSquaredRelu) return x < 0.0f ? 0.0f : x * x;
  if constexpr (kActivation == Activation::kTanh) return tanhf(x);
  if constexpr (kActivation == Activation::kSitu)
    return function.beta * tanhf(x / function.beta) * logistic(x);
  if constexpr (kActivation == Activation::kXielu) {
    if (x > 0.0f) return function.alpha_p * x * x + function.beta * x;
    const float cut = x > function.eps ? function.eps : x;  // NaN stays
    return function.alpha_n * (expm1f(cut) - x) + function.beta * x;
  }
}

}  // namespace kvcal::gpu
