#include <cmath>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/with_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// Mean to subtract from each value of a row, and the factor after it.
struct RowScale {
  float mean = 0.0f, inverse = 1.0f;
};

template <bool kCentered, bool kHasBias>
HWY_INLINE VF normed(VF x, const RowScale& scale, VF weight, VF bias) {
  const VF distance = kCentered ? hn::Sub(x, set(scale.mean)) : x;
  const VF scaled = hn::Mul(distance, set(scale.inverse));
  return kHasBias ? hn::MulAdd(scaled, weight, bias) : hn::Mul(scaled, weight);
}

enum class OutputNorm : uint8_t { kNone, kRms, kCentered };

/// A row that is updated at its first read: hidden += multiplier · x, or multiplier · norm(x).
template <OutputNorm kNorm>
struct ResidualRow {
  const float* x = nullptr;
  const float* weight = nullptr;
  RowScale scale = {};
  float multiplier = 1.0f;
  float* hidden = nullptr;

  template <class At>
  HWY_INLINE VF load(At at) const {
    VF value = at.load(x);
    const VF weights = at.load(weight);
    if (kNorm != OutputNorm::kNone)
      value = normed<kNorm == OutputNorm::kCentered, false>(value, scale, weights, weights);
    value = hn::MulAdd(set(multiplier), value, at.load(hidden));
    at.store(value, hidden);
    return value;
  }
};

/// Reads row once through its own functions, and again from x, which then holds it.
template <class Row>
HWY_INLINE RowScale row_scale(const Row& row, const float* x, int64_t width, bool centered,
                              float epsilon) {
  const float count = static_cast<float>(width);
  const VF zero = set(0.0f);
  if (!centered) {
    const auto add_square = [](VF v, VF sum) HWY_ATTR { return hn::MulAdd(v, v, sum); };
    return {0.0f, 1.0f / std::sqrt(sum_over(row, width, zero, add_square) / count + epsilon)};
  }
  const auto add_value = [](VF v, VF sum) HWY_ATTR { return hn::Add(v, sum); };
  const float mean = sum_over(row, width, zero, add_value) / count;
  return {mean, 1.0f / std::sqrt(mean_square(x, width, mean) + epsilon)};
}

/// Inputs of one row.
struct NormRow {
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  int64_t width = 0;
  RowScale scale = {};
};

/// Writes a row with its own scale, times weight, plus bias, and folds it into seen; the caller
/// ends the row. out may be x.
template <bool kCentered, bool kHasBias, class Out>
HWY_INLINE void scale_row(const NormRow& row, Out* out, AmaxFold<Out>& seen) {
  const float* bias =
      kHasBias ? row.bias : row.weight;  // read, and left alone, where there is none
  const RowScale scale = row.scale;
  store_row(row.width, out, [&](auto at) HWY_ATTR {
    return seen.fold(
        at, normed<kCentered, kHasBias>(at.load(row.x), scale, at.load(row.weight), at.load(bias)));
  });
}

/// The same for a row whose kind is known only at run time.
template <class Out>
HWY_INLINE void write_row(const NormRow& row, bool centered, Out* out, AmaxFold<Out>& seen) {
  if (centered)
    row.bias ? scale_row<true, true>(row, out, seen) : scale_row<true, false>(row, out, seen);
  else
    row.bias ? scale_row<false, true>(row, out, seen) : scale_row<false, false>(row, out, seen);
}

template <class Out>
HWY_INLINE void norm_row(NormRow row, bool centered, float epsilon, Out* out, AmaxFold<Out>& seen) {
  row.scale = row_scale(StoredRow{row.x}, row.x, row.width, centered, epsilon);
  write_row(row, centered, out, seen);
}

template <class Out>
HWY_NOINLINE Magnitudes norm_as(const NormArgs& args, int64_t begin, int64_t end) {
  AmaxFold<Out> seen;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * args.width;
    Out* out = static_cast<Out*>(args.out) + first;
    norm_row({.x = args.x + first, .weight = args.weight, .bias = args.bias, .width = args.width},
             args.centered, args.epsilon, out, seen);
    seen.end_row(out, args.width);
  }
  return seen.magnitudes();
}

Magnitudes norm_rows(const NormArgs& args, int64_t begin, int64_t end) {
  return with_type(args.out_type,
                   [&](auto out) { return norm_as<decltype(out)>(args, begin, end); });
}

template <OutputNorm kNorm, class Out>
HWY_NOINLINE Magnitudes residual_as(const ResidualNormArgs& args, int64_t begin, int64_t end) {
  AmaxFold<Out> seen;
  const int64_t width = args.width;
  for (int64_t row = begin; row < end; ++row) {
    ResidualRow<kNorm> residual{.x = args.x + row * width,
                                .weight = args.output_weight,
                                .scale = {},
                                .multiplier = args.multiplier,
                                .hidden = args.hidden + row * width};
    if (kNorm == OutputNorm::kNone)
      residual.weight = residual.x;  // read, and left alone
    else
      residual.scale =
          row_scale(StoredRow{residual.x}, residual.x, width, args.centered, args.epsilon);
    const RowScale scale = row_scale(residual, residual.hidden, width, args.centered, args.epsilon);
    if (!args.next_weight) continue;
    Out* out = static_cast<Out*>(args.out) + row * width;
    write_row({.x = residual.hidden,
               .weight = args.next_weight,
               .bias = args.next_bias,
               .width = width,
               .scale = scale},
              args.centered, out, seen);
    seen.end_row(out, width);
  }
  return seen.magnitudes();
}

Magnitudes residual_rows(const ResidualNormArgs& args, int64_t begin, int64_t end) {
  using enum OutputNorm;
  const OutputNorm kind = !args.output_weight ? kNone : args.centered ? kCentered : kRms;
  return with_value<kNone, kCentered, kRms>(kind, [&](auto norm) {
    return with_type(args.out_type, [&](auto out) {
      return residual_as<norm(), decltype(out)>(args, begin, end);
    });
  });
}

void norm_heads_rows(const NormHeadsArgs& args, int64_t begin, int64_t end) {
  const int64_t head_dim = args.x.head_dim, step = args.weight_per_head ? head_dim : 0;
  AmaxFold<float> unused;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h) {
      float* x = args.x.data + t * args.x.row_stride + h * head_dim;
      norm_row({.x = x,
                .weight = args.weight + h * step,
                .bias = args.bias ? args.bias + h * step : nullptr,
                .width = head_dim},
               args.centered, args.epsilon, x, unused);
    }
}

/// product: scratch of width floats, for the values between norm and gate.
template <GateFunction kFunction, class Out>
HWY_NOINLINE Magnitudes gated_norm_as(const GatedNormArgs& args, int64_t row, float* product) {
  AmaxFold<Out> seen;
  AmaxFold<float> unused;
  for (int64_t g = 0; g < args.groups; ++g) {
    const int64_t first = g * args.width;
    const float* x = args.x.data + row * args.x.row_stride + first;
    const float* gate = args.gate.data + row * args.gate.row_stride + first;
    const float* weight = args.weight + (args.weight_per_group ? first : 0);
    Out* out = static_cast<Out*>(args.out) + row * args.groups * args.width + first;
    if (args.gate_first) {
      gate_row<kFunction>(x, gate, args.width, product, unused);
      norm_row({.x = product, .weight = weight, .width = args.width}, false, args.epsilon, out,
               seen);
    } else {
      norm_row({.x = x, .weight = weight, .width = args.width}, false, args.epsilon, product,
               unused);
      gate_row<kFunction>(product, gate, args.width, out, seen);
    }
    seen.end_row(out, args.width);
  }
  return seen.magnitudes();
}

Magnitudes gated_norm_rows(const GatedNormArgs& args, int64_t begin, int64_t end) {
  std::vector<float> product(static_cast<size_t>(args.width));
  Magnitudes seen;
  with_gate(args.function, [&](auto function) {
    with_type(args.out_type, [&](auto out) {
      for (int64_t row = begin; row < end; ++row)
        seen.merge(gated_norm_as<function(), decltype(out)>(args, row, product.data()));
    });
  });
  return seen;
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(residual_rows);

KVCAL_BY_ROWS(norm, NormArgs, args.rows, args.width)
KVCAL_BY_ROWS(norm_heads, NormHeadsArgs, args.x.tokens, width_of(args.x))
KVCAL_BY_ROWS(gated_norm, GatedNormArgs, args.rows, (args.groups * args.width))

void CpuBackend::do_residual_norm(const ResidualNormArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    const Magnitudes seen = HWY_DYNAMIC_DISPATCH(residual_rows)(args, begin, end);
    if (args.next_weight) fold_into(args.seen, seen);
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
