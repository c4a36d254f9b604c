#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/streams.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

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
