// Sums over rows, and of rows. Transposes rows to columns and back, four at a time. Rotary
// embedding of one head. Amax of a kernel's output, computed while it writes. The guard is
// Highway's, see vector-inl.h.
#if defined(KVCAL_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCAL_KERNELS_CPU_ROWS_INL_H_
#undef KVCAL_KERNELS_CPU_ROWS_INL_H_
#else
#define KVCAL_KERNELS_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amax_slot.h"
#include "kernels/cpu/vector-inl.h"
#include "kernels/with_type.h"
#include "quant/half.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// A row in memory.
struct StoredRow {
  const float* x = nullptr;
  template <class At>
  HWY_INLINE VF load(At at) const {
    return at.load(x);
  }
};

/// Sum of the lanes in pairs of the same distance, the most distant first.
#if HWY_TARGET == HWY_SCALAR
template <int64_t kLanes, class D>
HWY_INLINE float sum_of_pairs(D, hn::Vec<D> v) {
  return hn::GetLane(v);
}
#else
template <int64_t kLanes, class D>
HWY_INLINE float sum_of_pairs(D, hn::Vec<D> v) {
  if constexpr (kLanes > 4) {
    const hn::Half<D> half;
    return sum_of_pairs<kLanes / 2>(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  }
}
#endif

/// Partial sums of a row: element i belongs to part i modulo kSumParts, so a sum is the same at
/// every number of lanes.
constexpr int64_t kSumParts = 16;
struct PartialSums {
  static constexpr int64_t kVectors = kSumParts / HWY_LANES(float);
  static_assert(kVectors > 0);

  VF sums[kVectors];

  HWY_INLINE PartialSums() {
    for (VF& sum : sums) sum = set(0.0f);
  }
  /// That of the elements from i on, a multiple of lanes().
  HWY_INLINE VF& of(int64_t i) { return sums[i / lanes() % kVectors]; }
  HWY_INLINE void add(const PartialSums& other) {
    for (int64_t i = 0; i < kVectors; ++i) sums[i] = hn::Add(sums[i], other.sums[i]);
  }
  /// The parts in pairs of the same distance, the most distant first.
  HWY_INLINE float total() {
    for (int64_t half = kVectors / 2; half > 0; half /= 2)
      for (int64_t i = 0; i < half; ++i) sums[i] = hn::Add(sums[i], sums[half + i]);
    return sum_of_pairs<HWY_LANES(float)>(DF(), sums[0]);
  }
};

/// Computes add(value, sum) over a row, in an order that depends only on the width. Extra lanes
/// hold `behind`, which must not change the sum.
template <class Row, class Add>
HWY_INLINE float sum_over(const Row& row, int64_t width, VF behind, const Add& add) {
  PartialSums sums0, sums1, sums2, sums3;
  const auto add_parts = [&](int64_t i, PartialSums& parts) HWY_ATTR {
    for (int64_t k = 0; k < PartialSums::kVectors; ++k)
      parts.sums[k] = add(row.load(Whole{i + k * lanes()}), parts.sums[k]);
  };
  int64_t i = 0;
  for (; i + 4 * kSumParts <= width; i += 4 * kSumParts) {
    add_parts(i, sums0);
    add_parts(i + kSumParts, sums1);
    add_parts(i + 2 * kSumParts, sums2);
    add_parts(i + 3 * kSumParts, sums3);
  }
  for (; i + kSumParts <= width; i += kSumParts) add_parts(i, sums0);
  for (; i + lanes() <= width; i += lanes()) sums0.of(i) = add(row.load(Whole{i}), sums0.of(i));
  if (const Rest rest{i, width - i}; rest.left > 0)
    sums0.of(i) = add(rest.inside(row.load(rest), behind), sums0.of(i));
  sums0.add(sums1);
  sums2.add(sums3);
  sums0.add(sums2);
  return sums0.total();
}

/// Mean of the squares of a row's distances from mean.
HWY_INLINE float mean_square(const float* x, int64_t width, float mean) {
  const VF means = set(mean);
  const auto add_square = [means](VF v, VF sum) HWY_ATTR {
    const VF distance = hn::Sub(v, means);
    return hn::MulAdd(distance, distance, sum);
  };
  return sum_over(StoredRow{x}, width, means, add_square) / static_cast<float>(width);
}

/// out += weight · x.
HWY_INLINE void add_row(const float* x, float weight, int64_t width, float* out) {
  const VF times = set(weight);
  for_vectors(
      width, [&](auto at) HWY_ATTR { at.store(hn::MulAdd(times, at.load(x), at.load(out)), out); });
}

#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<D4>;

HWY_INLINE void transpose(V4& a, V4& b, V4& c, V4& d) {
  const D4 d4;
  const V4 ab_low = hn::InterleaveLower(d4, a, b), ab_high = hn::InterleaveUpper(d4, a, b);
  const V4 cd_low = hn::InterleaveLower(d4, c, d), cd_high = hn::InterleaveUpper(d4, c, d);
  a = hn::ConcatLowerLower(d4, cd_low, ab_low);
  b = hn::ConcatUpperUpper(d4, cd_low, ab_low);
  c = hn::ConcatLowerLower(d4, cd_high, ab_high);
  d = hn::ConcatUpperUpper(d4, cd_high, ab_high);
}
#endif

/// out[d * stride + i] = rows[i][d] for four rows.
HWY_INLINE void rows_to_columns(const float* const* rows, int64_t count, float* out,
                                int64_t stride) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  for (; d + 4 <= count; d += 4) {
    V4 r0 = hn::LoadU(d4, rows[0] + d), r1 = hn::LoadU(d4, rows[1] + d);
    V4 r2 = hn::LoadU(d4, rows[2] + d), r3 = hn::LoadU(d4, rows[3] + d);
    transpose(r0, r1, r2, r3);
    hn::Store(r0, d4, out + d * stride);
    hn::Store(r1, d4, out + (d + 1) * stride);
    hn::Store(r2, d4, out + (d + 2) * stride);
    hn::Store(r3, d4, out + (d + 3) * stride);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) std::memcpy(out + d * stride + i, rows[i] + d, sizeof(float));
}

/// out[i * count + d] = in[d * stride + i] · factors[i] for four rows.
HWY_INLINE void columns_to_rows(const float* in, int64_t stride, const float* factors,
                                int64_t count, float* out) {
  int64_t d = 0;
#if HWY_TARGET != HWY_SCALAR
  const D4 d4;
  const V4 factor = hn::Load(d4, factors);
  for (; d + 4 <= count; d += 4) {
    V4 c0 = hn::Mul(hn::Load(d4, in + d * stride), factor);
    V4 c1 = hn::Mul(hn::Load(d4, in + (d + 1) * stride), factor);
    V4 c2 = hn::Mul(hn::Load(d4, in + (d + 2) * stride), factor);
    V4 c3 = hn::Mul(hn::Load(d4, in + (d + 3) * stride), factor);
    transpose(c0, c1, c2, c3);
    hn::StoreU(c0, d4, out + d);
    hn::StoreU(c1, d4, out + count + d);
    hn::StoreU(c2, d4, out + 2 * count + d);
    hn::StoreU(c3, d4, out + 3 * count + d);
  }
#endif
  for (; d < count; ++d)
    for (int64_t i = 0; i < 4; ++i) out[i * count + d] = in[d * stride + i] * factors[i];
}

/// Rotates (a, b) by the angles of cosine and sine.
HWY_INLINE void turn(VF& a, VF& b, VF cosine, VF sine) {
  const VF x = a, y = b;
  a = hn::MulSub(x, cosine, hn::Mul(y, sine));
  b = hn::MulAdd(y, cosine, hn::Mul(x, sine));
}

/// Rotates pairs (i, i + pairs) of one head.
HWY_INLINE void turn_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
  for_vectors(pairs, [&](auto at) HWY_ATTR {
    VF a = at.load(x), b = at.load(x + pairs);
    turn(a, b, at.load(cosines), at.load(sines));
    at.store(a, x);
    at.store(b, x + pairs);
  });
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

/// Magnitudes of count elements in memory.
template <class T>
Magnitudes magnitudes_of(const T* x, int64_t count) {
  const VI infinity = set_int(0x7f800000);
  VI largest = set_int(0), nonfinite = set_int(0);
  for_vectors(count, [&](auto at) HWY_ATTR {
    const VI magnitude = hn::And(as_int(at.load(x)), set_int(0x7fffffff));
    const auto finite = hn::Lt(magnitude, infinity);
    largest = hn::Max(largest, hn::IfThenElseZero(finite, magnitude));
    nonfinite = hn::Add(nonfinite, hn::IfThenZeroElse(finite, set_int(1)));
  });
  return {.amax = hn::GetLane(as_float(hn::MaxOfLanes(DI(), largest))),
          .nonfinite = static_cast<uint64_t>(hn::GetLane(hn::SumOfLanes(DI(), nonfinite)))};
}

/// Bits of the smallest float32 magnitude that rounds to infinity in Out.
template <class Out>
constexpr int32_t kOverflowBits = 0x7f800000;
template <>
inline constexpr int32_t kOverflowBits<BF16> = 0x7f7f8000;
template <>
inline constexpr int32_t kOverflowBits<F16> = 0x477ff000;  // 65520

/// Magnitudes of elements written from float32 vectors: call fold with each vector of a row, then
/// end_row. Rounding is monotonic, so only the largest value is rounded; a row is read again only
/// where it holds NaN or infinity.
template <class Out>
class AmaxFold {
 public:
  HWY_INLINE AmaxFold() : row_(set_int(0)), finite_(set_int(0)) {}  // not a default: GCC's targets
  /// Returns value.
  template <class At>
  HWY_INLINE VF fold(At at, VF value) {
    row_ = hn::Max(row_, hn::And(as_int(at.inside(value, set(0.0f))), set_int(0x7fffffff)));
    return value;
  }
  /// row: the count elements written from the vectors since the last call.
  HWY_INLINE void end_row(const Out* row, int64_t count) {
    if (hn::AllTrue(DI(), hn::Lt(row_, set_int(kOverflowBits<Out>)))) {
      finite_ = hn::Max(finite_, row_);
    } else {
      rest_.merge(magnitudes_of(row, count));
    }
    row_ = set_int(0);
  }
  /// Magnitudes of all completed rows.
  HWY_INLINE Magnitudes magnitudes() const {
    Magnitudes all = rest_;
    const float largest = hn::GetLane(as_float(hn::MaxOfLanes(DI(), finite_)));
    all.merge({.amax = to_float(element_of<Out>(largest)), .nonfinite = 0});
    return all;
  }

 private:
  VI row_, finite_;
  Magnitudes rest_;
};

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of one instruction set
