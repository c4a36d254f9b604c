// Rotary embedding of one head. The guard is Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ROPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ROPE_INL_H_
#undef KVCAL_KERNELS_CPU_ROPE_INL_H_
#else
#define KVCAL_KERNELS_CPU_ROPE_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Rotates (a, b) by the angles of cosine and sine.
HWY_INLINE void turn(VF& a, VF& b, VF cosine, VF sine) {
  const VF x = a, y = b;
  a = hn::MulSub(x, cosine, hn::Mul(y, sine));
  b = hn::MulAdd(y, cosine, hn::Mul(x, sine));
}

/// Rotates pairs (i, i + pairs) of one head.
HWY_INLINE void turn_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
  int64_t i = 0;
  for (; i + lanes() <= pairs; i += lanes()) {
    VF a = load_as_float(x + i), b = load_as_float(x + pairs + i);
    turn(a, b, load_as_float(cosines + i), load_as_float(sines + i));
    store_from_float(a, x + i);
    store_from_float(b, x + pairs + i);
  }
  const int64_t left = pairs - i;
  if (left == 0) return;
  VF a = load_part(x + i, left), b = load_part(x + pairs + i, left);
  turn(a, b, load_part(cosines + i, left), load_part(sines + i, left));
  store_part(a, x + i, left);
  store_part(b, x + pairs + i, left);
}

/// Rotates pairs (2i, 2i + 1) of one head.
HWY_INLINE void turn_neighbours(float* x, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i += lanes()) {
    const int64_t here = std::min(lanes(), pairs - i);
    float both[2 * kMaxLanes] = {};
    std::memcpy(both, x + 2 * i, static_cast<size_t>(2 * here) * sizeof(float));
    VF a, b;
    hn::LoadInterleaved2(DF(), both, a, b);
    turn(a, b, load_part(cosines + i, here), load_part(sines + i, here));
    hn::StoreInterleaved2(a, b, DF(), both);
    std::memcpy(x + 2 * i, both, static_cast<size_t>(2 * here) * sizeof(float));
  }
}

/// Rotates one head of token t of args, at x.
HWY_INLINE void turn_head(const RopeArgs& args, int64_t t, float* x) {
  const int64_t pairs = args.rotary_dim / 2;
  const float* cosines = args.cos + args.positions[t] * pairs;
  const float* sines = args.sin + args.positions[t] * pairs;
  args.interleaved ? turn_neighbours(x, cosines, sines, pairs)
                   : turn_halves(x, cosines, sines, pairs);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
