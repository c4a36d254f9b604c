#include "kernels/cpu/aligned_view.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/amax-inl.h"
#include "kernels/cpu/rope-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// out = multiplier · row, or out += multiplier · row.
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

void scale_rows(const ScaleArgs& args, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float* row = args.x.data + t * args.x.row_stride;
    scaled_row(row, args.x.heads * args.x.head_dim, args.factor, false, row);
  }
}

/// x between -limit and limit; NaN stays.
HWY_INLINE VF clamped(VF x, VF limit) {
  const VF least = hn::Neg(limit);
  return hn::IfThenElse(hn::Gt(x, limit), limit, hn::IfThenElse(hn::Lt(x, least), least, x));
}

void clamp_rows(const ClampArgs& args, int64_t begin, int64_t end) {
  const VF limit = set(args.limit);
  const int64_t width = args.x.heads * args.x.head_dim;
  for (int64_t t = begin; t < end; ++t) {
    float* row = args.x.data + t * args.x.row_stride;
    int64_t i = 0;
    for (; i + lanes() <= width; i += lanes())
      store_from_float(clamped(load_as_float(row + i), limit), row + i);
    if (const int64_t left = width - i; left > 0)
      store_part(clamped(load_part(row + i, left), limit), row + i, left);
  }
}

void rope_rows(const RopeArgs& args, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h)
      turn_head(args, t, args.x.data + t * args.x.row_stride + h * args.x.head_dim);
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
HWY_EXPORT(scale_rows);
HWY_EXPORT(clamp_rows);
HWY_EXPORT(magnitudes);

void CpuBackend::do_embed(const EmbedArgs& args) {
  for_row_blocks(static_cast<int64_t>(args.ids.size()), args.table.shape[1],
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(embed_rows)(args, begin, end);
                 });
}

void CpuBackend::do_rope(const RopeArgs& args) {
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rope_rows)(args, begin, end);
  });
}

void CpuBackend::do_scale(const ScaleArgs& args) {
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scale_rows)(args, begin, end);
  });
}

void CpuBackend::do_clamp(const ClampArgs& args) {
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(clamp_rows)(args, begin, end);
  });
}

void CpuBackend::do_observe_amax(const ObserveAmaxArgs& args) {
  for_row_blocks(args.count, 1, [&](int64_t begin, int64_t end) {
    fold_into({args.amax, args.nonfinite}, HWY_DYNAMIC_DISPATCH(magnitudes)(args, begin, end));
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
