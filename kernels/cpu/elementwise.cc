#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/amax_slot.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/with_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// out = multiplier · row, or out += multiplier · row.
template <class In>
void scaled_row(const In* row, int64_t width, float multiplier, bool accumulate, float* out) {
  const VF times = set(multiplier);
  for_vectors(width, [&](auto at) HWY_ATTR {
    const VF value = hn::Mul(times, at.load(row));
    at.store(accumulate ? hn::Add(at.load(out), value) : value, out);
  });
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
  with_type(args.table.dtype, [&](auto in) { embed_as<decltype(in)>(args, begin, end); });
}

/// Calls change for the vectors of a row, and stores what it returns.
template <class Change>
HWY_INLINE void change_row(float* x, int64_t width, const Change& change) {
  for_vectors(width, [&](auto at) HWY_ATTR { at.store(change(at.load(x)), x); });
}

void scale_rows(const ScaleArgs& args, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    float* row = args.x.data + t * args.x.row_stride;
    scaled_row(row, width_of(args.x), args.factor, false, row);
  }
}

/// x between -limit and limit; NaN stays.
HWY_INLINE VF clamped(VF x, VF limit) {
  const VF least = hn::Neg(limit);
  return hn::IfThenElse(hn::Gt(x, limit), limit, hn::IfThenElse(hn::Lt(x, least), least, x));
}

void clamp_rows(const ClampArgs& args, int64_t begin, int64_t end) {
  const VF limit = set(args.limit);
  const int64_t width = width_of(args.x);
  for (int64_t t = begin; t < end; ++t) {
    float* row = args.x.data + t * args.x.row_stride;
    change_row(row, width, [=](VF x) HWY_ATTR { return clamped(x, limit); });
  }
}

void rope_rows(const RopeArgs& args, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h)
      turn_head(args, t, args.x.data + t * args.x.row_stride + h * args.x.head_dim);
}

Magnitudes magnitudes(const ObserveAmaxArgs& args, int64_t begin, int64_t end) {
  return with_type(args.type, [&](auto in) {
    return magnitudes_of(static_cast<const decltype(in)*>(args.x) + begin, end - begin);
  });
}

/// Elements [begin, end): all lanes compute alike, so a part may end anywhere.
void add_rows(const AddArgs& args, int64_t begin, int64_t end) {
  add_row(args.x + begin, args.multiplier, end - begin, args.out + begin);
}

void combine_rows_rows(const CombineRowsArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin * args.per_row; i < end * args.per_row; ++i) {
    const int64_t at = (args.places ? args.places[i] : i) - args.first;
    if (at < 0 || at >= args.count) continue;
    add_row(args.x + at * args.width, args.weights ? args.weights[at] : 1.0f, args.width,
            args.out + i / args.per_row * args.width);
  }
}

void mix_streams_rows(const MixStreamsArgs& args, int64_t begin, int64_t end) {
  const int64_t size = args.rows * args.width;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t p = 0; p < args.streams; ++p) {
      const float* coefficients = args.coefficients + (row * args.streams + p) * args.inputs;
      float* out = args.out + p * size + row * args.width;
      if (args.x)
        std::memcpy(out, args.x + p * size + row * args.width,
                    static_cast<size_t>(args.width) * sizeof(float));
      else
        std::fill_n(out, args.width, 0.0f);
      for (int64_t q = 0; q < args.inputs; ++q)
        add_row(args.added + q * size + row * args.width, coefficients[q], args.width, out);
    }
}

float logistic(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

/// Divides `count` numbers, `step` apart, by their sum plus epsilon.
void divide_by_sum(float* x, int64_t count, int64_t step, float epsilon) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += x[i * step];
  for (int64_t i = 0; i < count; ++i) x[i * step] /= sum + epsilon;
}

/// A token has few weights, which take no vectors. The pairs are [to, from] in rows of expand.
void connect_streams_rows(const ConnectStreamsArgs& args, int64_t begin, int64_t end) {
  const int64_t streams = args.streams, stride = streams + 1;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x + row * args.width();
    const auto product = [&](int64_t i, int64_t part) {
      return x[i] * args.scale[part] + args.base[i];
    };
    float* collapse = args.collapse + row * streams;
    float* expand = args.expand + row * streams * stride;
    for (int64_t i = 0; i < streams; ++i) {
      collapse[i] = logistic(product(i, 0)) + args.epsilon;
      expand[i * stride + streams] = 2.0f * logistic(product(streams + i, 1));
      float* of_stream = expand + i;
      float largest = -std::numeric_limits<float>::infinity();
      for (int64_t to = 0; to < streams; ++to)
        largest = std::max(largest, of_stream[to * stride] = product((2 + i) * streams + to, 2));
      for (int64_t to = 0; to < streams; ++to)
        of_stream[to * stride] = std::exp(of_stream[to * stride] - largest);
      divide_by_sum(of_stream, streams, stride, 0.0f);
      for (int64_t to = 0; to < streams; ++to) of_stream[to * stride] += args.epsilon;
    }
    for (int64_t i = 0; i < args.iterations; ++i) {
      for (int64_t from = 0; i > 0 && from < streams; ++from)
        divide_by_sum(expand + from, streams, stride, args.epsilon);
      for (int64_t to = 0; to < streams; ++to)
        divide_by_sum(expand + to * stride, streams, 1, args.epsilon);
    }
  }
}

/// Products of two rows.
struct ProductRow {
  const float *a = nullptr, *b = nullptr;
  template <class At>
  HWY_INLINE VF load(At at) const {
    return hn::Mul(at.load(a), at.load(b));
  }
};

void attend_streams_rows(const AttendStreamsArgs& args, int64_t begin, int64_t end) {
  const auto add = [](VF v, VF sum) HWY_ATTR { return hn::Add(v, sum); };
  const int64_t size = args.rows * args.width;
  float weights[AttendStreamsArgs::kMaxStreams];
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x + row * args.width;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t s = 0; s < args.streams; ++s) {
      const float* stream = x + s * size;
      const float product = sum_over(ProductRow{stream, args.weight}, args.width, set(0.0f), add);
      weights[s] = product / std::sqrt(mean_square(stream, args.width, 0.0f) + args.epsilon);
      largest = std::max(largest, weights[s]);
    }
    for (int64_t s = 0; s < args.streams; ++s) weights[s] = std::exp(weights[s] - largest);
    divide_by_sum(weights, args.streams, 1, 0.0f);
    float* out = args.out + row * args.width;
    for_vectors(args.width, [&](auto at) HWY_ATTR {
      VF sum = set(0.0f);
      for (int64_t s = 0; s < args.streams; ++s)
        sum = hn::MulAdd(set(weights[s]), at.load(x + s * size), sum);
      at.store(sum, out);
    });
  }
}

void gate_by_keys_rows(const GateByKeysArgs& args, int64_t begin, int64_t end) {
  const auto add = [](VF v, VF sum) HWY_ATTR { return hn::Add(v, sum); };
  for (int64_t i = begin * args.streams; i < end * args.streams; ++i) {
    const int64_t at_row = i * args.width;
    const float product =
        sum_over(ProductRow{args.key + at_row, args.stream + at_row}, args.width, set(0.0f), add);
    const VF gate = set(args.gate(product));
    const float* value = args.value + i / args.streams * args.width;
    float* out = args.out + at_row;
    for_vectors(args.width,
                [&](auto at) HWY_ATTR { at.store(hn::Mul(gate, at.load(value)), out); });
  }
}

void match_magnitude_rows(const MatchMagnitudeArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* x = args.x + row * args.width;
    const float own = mean_square(x, args.width, 0.0f);
    const float wanted = mean_square(args.target + row * args.width, args.width, 0.0f);
    const VF factor =
        set(std::sqrt(wanted) / std::sqrt(own < args.floor ? args.floor : own));  // NaN stays
    change_row(x, args.width, [=](VF value) HWY_ATTR { return hn::Mul(value, factor); });
  }
}

void keep_outliers_rows(const KeepOutliersArgs& args, int64_t begin, int64_t end) {
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

template <Activation kActivation, Gate kGate, class Out>
HWY_NOINLINE Magnitudes activate_as(const ActivationBlock& block) {
  const ActivationFunction function = block.activation;
  AmaxFold<Out> seen;
  for (int64_t r = 0; r < block.rows; ++r) {
    const float* gate = block.gate + r * block.x_stride;
    const float* up = block.up ? block.up + r * block.x_stride : gate;
    Out* out = static_cast<Out*>(block.out) + r * block.out_stride;
    store_row(block.width, out, [&](auto at) HWY_ATTR {
      return seen.fold(at, gated<kActivation, kGate>(at.load(gate), at.load(up), function));
    });
    seen.end_row(out, block.width);
  }
  return seen.magnitudes();
}

Magnitudes activate_rows(const ActivationBlock& block) {
  const bool is_plain = block.activation.limit == 0.0f &&
                        block.activation.gate_multiplier == 1.0f &&
                        block.activation.up_softcap == 0.0f;
  const Gate kind = !block.up ? Gate::kNone : is_plain ? Gate::kPlain : Gate::kAdjusted;
  return with_activation(block.activation.kind, [&](auto activation) {
    return with_value<Gate::kNone, Gate::kPlain, Gate::kAdjusted>(kind, [&](auto gate) {
      return with_type(block.out_type, [&](auto out) {
        return activate_as<activation(), gate(), decltype(out)>(block);
      });
    });
  });
}

template <GateFunction kFunction, class Out>
HWY_NOINLINE Magnitudes multiply_gate_as(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  const int64_t head_stride = args.gate_stride();
  AmaxFold<Out> seen;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.heads; ++h) {
      Out* out = static_cast<Out*>(args.out) + (t * args.heads + h) * args.width;
      const float* x = args.x.data + t * args.x.row_stride + h * args.width;
      const float* gate = args.gate.data + t * args.gate.row_stride + h * head_stride;
      if (args.gate_per_head)
        store_row(args.width, out, [&, factor = gate_of<kFunction>(set(*gate))](auto at) HWY_ATTR {
          return seen.fold(at, hn::Mul(at.load(x), factor));
        });
      else
        gate_row<kFunction>(x, gate, args.width, out, seen);
      seen.end_row(out, args.width);
    }
  return seen.magnitudes();
}

Magnitudes multiply_gate_rows(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  return with_gate(args.function, [&](auto function) {
    return with_type(args.out_type, [&](auto out) {
      return multiply_gate_as<function(), decltype(out)>(args, begin, end);
    });
  });
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {

KVCAL_BY_ROWS(embed, EmbedArgs, std::ssize(args.ids), args.table.shape[1])
KVCAL_BY_ROWS(rope, RopeArgs, args.x.tokens, width_of(args.x))
KVCAL_BY_ROWS(scale, ScaleArgs, args.x.tokens, width_of(args.x))
KVCAL_BY_ROWS(clamp, ClampArgs, args.x.tokens, width_of(args.x))
KVCAL_BY_ROWS(add, AddArgs, args.count, 1)
KVCAL_BY_ROWS(combine_rows, CombineRowsArgs, args.rows, args.width)
KVCAL_BY_ROWS(mix_streams, MixStreamsArgs, args.rows, (args.streams * args.width))
KVCAL_BY_ROWS(connect_streams, ConnectStreamsArgs, args.rows, (args.iterations * args.width()))
KVCAL_BY_ROWS(attend_streams, AttendStreamsArgs, args.rows, (args.streams * args.width))
KVCAL_BY_ROWS(gate_by_keys, GateByKeysArgs, args.rows, (args.streams * args.width))
KVCAL_BY_ROWS(match_magnitude, MatchMagnitudeArgs, args.rows, args.width)
KVCAL_BY_ROWS(keep_outliers, KeepOutliersArgs, args.rows, args.width)

HWY_EXPORT(magnitudes);

void CpuBackend::do_observe_amax(const ObserveAmaxArgs& args) {
  for_row_blocks(args.count, 1, [&](int64_t begin, int64_t end) {
    fold_into({args.amax, args.nonfinite}, HWY_DYNAMIC_DISPATCH(magnitudes)(args, begin, end));
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

HWY_EXPORT(activate_rows);

Magnitudes activate_block(const ActivationBlock& block) {
  return HWY_DYNAMIC_DISPATCH(activate_rows)(block);
}

void CpuBackend::do_activate(const ActivationArgs& args) {
  const int64_t stride = args.gated ? 2 * args.width : args.width;
  const int64_t row_bytes = args.width * static_cast<int64_t>(bytes_of(args.out_type));
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    const float* gate = args.x + begin * stride;
    fold_into(args.seen,
              activate_block({.gate = gate,
                              .up = args.gated ? gate + args.width : nullptr,
                              .x_stride = stride,
                              .rows = end - begin,
                              .width = args.width,
                              .activation = args.activation,
                              .out_type = args.out_type,
                              .out = static_cast<std::byte*>(args.out) + begin * row_bytes,
                              .out_stride = args.width}));
  });
}

KVCAL_BY_ROWS(multiply_gate, MultiplyGateArgs, args.rows, (args.heads * args.width))

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
