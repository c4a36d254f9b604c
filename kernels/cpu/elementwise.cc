#include <cmath>
#include <cstring>

#include "kernels/cpu/amax_slot.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/rows-inl.h"

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

/// Elements [begin, end): all lanes compute alike, so a part may end anywhere.
void add_part(const AddArgs& args, int64_t begin, int64_t end) {
  add_row(args.x + begin, args.multiplier, end - begin, args.out + begin);
}

void combine_rows(const CombineRowsArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin * args.per_row; i < end * args.per_row; ++i) {
    const int64_t at = (args.places ? args.places[i] : i) - args.first;
    if (at < 0 || at >= args.count) continue;
    add_row(args.x + at * args.width, args.weights ? args.weights[at] : 1.0f, args.width,
            args.out + i / args.per_row * args.width);
  }
}

/// Calls change for the vectors of a row, and stores what it returns.
template <class Change>
HWY_INLINE void change_row(float* x, int64_t width, const Change& change) {
  int64_t i = 0;
  for (; i + lanes() <= width; i += lanes()) store_from_float(change(load_as_float(x + i)), x + i);
  if (const int64_t left = width - i; left > 0)
    store_part(change(load_part(x + i, left)), x + i, left);
}

void mix_rows(const MixStreamsArgs& args, int64_t begin, int64_t end) {
  const int64_t size = args.rows * args.width;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t p = 0; p < args.streams; ++p) {
      const float* coefficients = args.coefficients + (row * args.streams + p) * args.inputs;
      float* out = args.out + p * size + row * args.width;
      std::memcpy(out, args.x + p * size + row * args.width,
                  static_cast<size_t>(args.width) * sizeof(float));
      for (int64_t q = 0; q < args.inputs; ++q)
        add_row(args.added + q * size + row * args.width, coefficients[q], args.width, out);
    }
}

void match_rows(const MatchMagnitudeArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* x = args.x + row * args.width;
    const float own = mean_square(x, args.width, 0.0f);
    const float wanted = mean_square(args.target + row * args.width, args.width, 0.0f);
    const VF factor =
        set(std::sqrt(wanted) / std::sqrt(own < args.floor ? args.floor : own));  // NaN stays
    change_row(x, args.width, [=](VF value) HWY_ATTR { return hn::Mul(value, factor); });
  }
}

void keep_rows(const KeepOutliersArgs& args, int64_t begin, int64_t end) {
  const auto add = [](VF v, VF sum) HWY_ATTR { return hn::Add(v, sum); };
  for (int64_t row = begin; row < end; ++row) {
    float* x = args.x + row * args.row_stride;
    const float mean =
        sum_over(StoredRow{x}, args.width, set(0.0f), add) / static_cast<float>(args.width);
    const float deviation = std::sqrt(mean_square(x, args.width, mean));
    const VF border = set(mean + deviation * args.deviations);
    change_row(x, args.width, [=](VF value) HWY_ATTR {
      const VF above = hn::Sub(value, border);
      return hn::IfThenZeroElse(hn::Lt(above, set(0.0f)), above);  // NaN stays
    });
  }
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

HWY_EXPORT(add_part);
HWY_EXPORT(combine_rows);

void CpuBackend::do_add(const AddArgs& args) {
  for_row_blocks(args.count, 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_part)(args, begin, end);
  });
}

void CpuBackend::do_combine_rows(const CombineRowsArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(combine_rows)(args, begin, end);
  });
}

void CpuBackend::do_route(const RouteArgs& args) {
  for_row_blocks(args.rows, args.rule.experts,
                 [&](int64_t begin, int64_t end) { choose_experts(args, begin, end); });
  sort_by_expert(args);
}

void CpuBackend::do_gather_rows(const GatherRowsArgs& args) {
  const size_t bytes = static_cast<size_t>(args.width) * bytes_of(args.type);
  const auto* x = static_cast<const std::byte*>(args.x);
  auto* out = static_cast<std::byte*>(args.out);
  for_row_blocks(args.count, args.width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(out + static_cast<size_t>(i) * bytes,
                  x + static_cast<size_t>(args.rows[i]) * bytes, bytes);
  });
}

void CpuBackend::do_copy_heads(const CopyHeadsArgs& args) {
  const size_t bytes = static_cast<size_t>(args.width) * sizeof(float);
  const int64_t step = args.x.heads == 1 ? 0 : args.x.head_dim;
  for_row_blocks(args.x.tokens, args.out.heads * args.width, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < args.out.heads; ++h)
        std::memcpy(args.out.data + t * args.out.row_stride + h * args.out.head_dim,
                    args.x.data + t * args.x.row_stride + h * step, bytes);
  });
}

HWY_EXPORT(mix_rows);
HWY_EXPORT(match_rows);
HWY_EXPORT(keep_rows);

void CpuBackend::do_mix_streams(const MixStreamsArgs& args) {
  for_row_blocks(args.rows, args.streams * args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(mix_rows)(args, begin, end);
  });
}

void CpuBackend::do_match_magnitude(const MatchMagnitudeArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(match_rows)(args, begin, end);
  });
}

void CpuBackend::do_keep_outliers(const KeepOutliersArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(keep_rows)(args, begin, end);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
