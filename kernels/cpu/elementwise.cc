#include <algorithm>

#include "kernels/cpu/aligned_view.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/amax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// out = multiplier · row, or out += it.
template <class In>
void scaled_row(const In* row, int64_t width, float multiplier, bool accumulate, float* out) {
  const VF times = set(multiplier);
  int64_t i = 0;
  for (; i + lanes() <= width; i += lanes()) {
    const VF value = hn::Mul(times, load_as_float(row + i));
    store_from_float(accumulate ? hn::Add(load_as_float(out + i), value) : value, out + i);
  }
  if (const int64_t left = width - i; left > 0) {
    const VF value = hn::Mul(times, load_part(row + i, left));
    store_part(accumulate ? hn::Add(load_part(out + i, left), value) : value, out + i, left);
  }
}

template <class In>
void embed_as(const EmbedArgs& args, int64_t begin, int64_t end) {
  const int64_t hidden = args.table.shape[1];
  const int64_t row_bytes = hidden * static_cast<int64_t>(sizeof(In));
  for (int64_t row = begin; row < end; ++row) {
    const auto id = static_cast<int64_t>(args.ids[static_cast<size_t>(row)]);
    const AlignedView<In> stored(args.table.bytes.data() + id * row_bytes, hidden);
    scaled_row(stored.data(), hidden, args.multiplier, args.accumulate, args.out + row * hidden);
  }
}

void embed_rows(const EmbedArgs& args, int64_t begin, int64_t end) {
  if (args.table.dtype == DType::kF32) return embed_as<float>(args, begin, end);
  if (args.table.dtype == DType::kF16) return embed_as<F16>(args, begin, end);
  embed_as<BF16>(args, begin, end);
}

/// Turns (a, b) by the angles of cosine and sine.
HWY_INLINE void turn(VF& a, VF& b, VF cosine, VF sine) {
  const VF x = a, y = b;
  a = hn::MulSub(x, cosine, hn::Mul(y, sine));
  b = hn::MulAdd(y, cosine, hn::Mul(x, sine));
}

/// Pairs (i, i + pairs) of one head.
void turn_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
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

/// Pairs (2i, 2i + 1) of one head.
void turn_neighbours(float* x, const float* cosines, const float* sines, int64_t pairs) {
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

void rope_rows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t pairs = args.rotary_dim / 2;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h) {
      float* x = args.x.data + t * args.x.row_stride + h * args.x.head_dim;
      const float* cosines = args.cos + args.positions[t] * pairs;
      const float* sines = args.sin + args.positions[t] * pairs;
      args.interleaved ? turn_neighbours(x, cosines, sines, pairs)
                       : turn_halves(x, cosines, sines, pairs);
    }
}

Magnitudes magnitudes(const ObserveAmaxArgs& args, int64_t begin, int64_t end) {
  const int64_t count = end - begin;
  if (args.type == ComputeType::kFloat32)
    return magnitudes_of(static_cast<const float*>(args.x) + begin, count);
  if (args.type == ComputeType::kFloat16)
    return magnitudes_of(static_cast<const F16*>(args.x) + begin, count);
  return magnitudes_of(static_cast<const BF16*>(args.x) + begin, count);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(embed_rows);
HWY_EXPORT(rope_rows);
HWY_EXPORT(magnitudes);

void CpuBackend::embed(const EmbedArgs& args) {
  check_embed(args);
  for_row_blocks(static_cast<int64_t>(args.ids.size()), args.table.shape[1],
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(embed_rows)(args, begin, end);
                 });
}

void CpuBackend::rope(const RopeArgs& args) {
  check_rope(args);
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(args, begin, end);
  });
}

void CpuBackend::observe_amax(const ObserveAmaxArgs& args) {
  check_observe_amax(args);
  for_row_blocks(args.count, 1, [&](int64_t begin, int64_t end) {
    fold_into({args.amax, args.nonfinite}, HWY_DYNAMIC_DISPATCH(magnitudes)(args, begin, end));
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
