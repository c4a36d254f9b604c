#include <cmath>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

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

  HWY_INLINE VF sum(VF value, VF weights, VF before) const {
    if (kNorm != OutputNorm::kNone)
      value = normed<kNorm == OutputNorm::kCentered, false>(value, scale, weights, weights);
    return hn::MulAdd(set(multiplier), value, before);
  }
  HWY_INLINE VF at(int64_t i) const {
    const VF value =
        sum(load_as_float(x + i), load_as_float(weight + i), load_as_float(hidden + i));
    store_from_float(value, hidden + i);
    return value;
  }
  HWY_INLINE VF part(int64_t i, int64_t count) const {
    const VF value =
        sum(load_part(x + i, count), load_part(weight + i, count), load_part(hidden + i, count));
    store_part(value, hidden + i, count);
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
  store_row(
      row.width, out,
      [&](int64_t i) HWY_ATTR {
        const VF value =
            normed<kCentered, kHasBias>(load_as_float(row.x + i), scale,
                                        load_as_float(row.weight + i), load_as_float(bias + i));
        seen.fold(value);
        return value;
      },
      [&](int64_t i, int64_t left) HWY_ATTR {
        const VF value =
            normed<kCentered, kHasBias>(load_part(row.x + i, left), scale,
                                        load_part(row.weight + i, left), load_part(bias + i, left));
        seen.fold_part(value, left);
        return value;
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
  if (args.out_type == ComputeType::kFloat32) return norm_as<float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16) return norm_as<F16>(args, begin, end);
  return norm_as<BF16>(args, begin, end);
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

template <OutputNorm kNorm>
Magnitudes residual_by(const ResidualNormArgs& args, int64_t begin, int64_t end) {
  if (args.out_type == ComputeType::kFloat32) return residual_as<kNorm, float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16) return residual_as<kNorm, F16>(args, begin, end);
  return residual_as<kNorm, BF16>(args, begin, end);
}

Magnitudes residual_rows(const ResidualNormArgs& args, int64_t begin, int64_t end) {
  if (!args.output_weight) return residual_by<OutputNorm::kNone>(args, begin, end);
  if (args.centered) return residual_by<OutputNorm::kCentered>(args, begin, end);
  return residual_by<OutputNorm::kRms>(args, begin, end);
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

template <GateFunction kFunction>
Magnitudes gated_norm_row(const GatedNormArgs& args, int64_t row, float* product) {
  if (args.out_type == ComputeType::kFloat32)
    return gated_norm_as<kFunction, float>(args, row, product);
  if (args.out_type == ComputeType::kFloat16)
    return gated_norm_as<kFunction, F16>(args, row, product);
  return gated_norm_as<kFunction, BF16>(args, row, product);
}

Magnitudes gated_norm_rows(const GatedNormArgs& args, int64_t begin, int64_t end) {
  std::vector<float> product(static_cast<size_t>(args.width));
  const auto normed_row = [&](int64_t row) {
    switch (args.function) {
      case GateFunction::kSilu:
        return gated_norm_row<GateFunction::kSilu>(args, row, product.data());
      case GateFunction::kSigmoid:
        return gated_norm_row<GateFunction::kSigmoid>(args, row, product.data());
      case GateFunction::kSoftplus:
        return gated_norm_row<GateFunction::kSoftplus>(args, row, product.data());
      case GateFunction::kIdentity:
        break;
    }
    return gated_norm_row<GateFunction::kIdentity>(args, row, product.data());
  };
  Magnitudes seen;
  for (int64_t row = begin; row < end; ++row) seen.merge(normed_row(row));
  return seen;
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(gated_norm_rows);
HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_heads_rows);
HWY_EXPORT(residual_rows);

void CpuBackend::do_norm(const NormArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    fold_into(args.seen, HWY_DYNAMIC_DISPATCH(norm_rows)(args, begin, end));
  });
}

void CpuBackend::do_residual_norm(const ResidualNormArgs& args) {
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    const Magnitudes seen = HWY_DYNAMIC_DISPATCH(residual_rows)(args, begin, end);
    if (args.next_weight) fold_into(args.seen, seen);
  });
}

void CpuBackend::do_norm_heads(const NormHeadsArgs& args) {
  for_row_blocks(args.x.tokens, args.x.heads * args.x.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_heads_rows)(args, begin, end);
  });
}

void CpuBackend::do_gated_norm(const GatedNormArgs& args) {
  for_row_blocks(args.rows, args.groups * args.width, [&](int64_t begin, int64_t end) {
    fold_into(args.seen, HWY_DYNAMIC_DISPATCH(gated_norm_rows)(args, begin, end));
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
