#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"
#include "quant/observations.h"

namespace kvcal {
namespace {

using reference::logistic;

/// Source: torch.nn.functional silu, gelu (approximate "none" and "tanh") and relu; xIELU: see
/// ActivationFunction.
double activated(const ActivationFunction& function, double x) {
  switch (function.kind) {
    case Activation::kSilu:
      return x * logistic(x);
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::kQuickGelu:
      return x * logistic(1.702 * x);
    case Activation::kRelu:
      return x < 0.0 ? 0.0 : x;
    case Activation::kSquaredRelu:
      return x < 0.0 ? 0.0 : x * x;
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSitu:
      return function.beta * std::tanh(x / function.beta) * logistic(x);
    case Activation::kXielu: {
      const double linear = function.beta * x, eps = function.eps;
      if (x > 0.0) return function.alpha_p * x * x + linear;
      return function.alpha_n * (std::expm1(x < eps ? x : eps) - x) + linear;  // NaN stays
    }
  }
  return 0.0;
}

/// Rotates the pair (a, b) by one angle.
void turn(float& a, float& b, double cosine, double sine) {
  const double x = a, y = b;
  a = static_cast<float>(x * cosine - y * sine);
  b = static_cast<float>(y * cosine + x * sine);
}

}  // namespace

void ReferenceBackend::do_embed(const EmbedArgs& args) {
  const int64_t hidden = args.table.shape[1];
  for (size_t row = 0; row < args.ids.size(); ++row)
    for (int64_t i = 0; i < hidden; ++i) {
      const float value =
          args.multiplier * reference::load_float(args.table.dtype, args.table.bytes.data(),
                                                  args.ids[row] * hidden + i);
      float& out = args.out[static_cast<int64_t>(row) * hidden + i];
      out = args.accumulate ? out + value : value;
    }
}

void ReferenceBackend::do_rope(const RopeArgs& args) {
  const int64_t pairs = args.rotary_dim / 2;
  for (int64_t t = 0; t < args.x.tokens; ++t) {
    const float* cosines = args.cos + args.positions[t] * pairs;
    const float* sines = args.sin + args.positions[t] * pairs;
    for (int64_t h = 0; h < args.x.heads; ++h) {
      float* x = args.x.data + t * args.x.row_stride + h * args.x.head_dim;
      for (int64_t i = 0; i < pairs; ++i) {
        float& first = args.interleaved ? x[2 * i] : x[i];
        float& second = args.interleaved ? x[2 * i + 1] : x[i + pairs];
        turn(first, second, cosines[i], sines[i]);
      }
    }
  }
}

void ReferenceBackend::do_activate(const ActivationArgs& args) {
  const ActivationFunction& function = args.activation;
  const int64_t stride = args.gated ? 2 * args.width : args.width;
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < args.width; ++i) {
      const float* x = args.x + r * stride + i;
      double gate = x[0], up = args.gated ? x[args.width] : 1.0f;
      gate *= function.gate_multiplier;
      const double cap = function.up_softcap;
      if (cap > 0.0) up = cap * std::tanh(up / cap);
      const double limit = function.limit;  // comparisons that leave a NaN as it is
      const bool has_limit = function.limit > 0.0f, cuts_last = function.limits_activated;
      if (has_limit && !cuts_last) gate = gate > limit ? limit : gate;
      double factor = activated(function, gate);
      if (has_limit && cuts_last) factor = factor > limit ? limit : factor;
      const double shift = cuts_last || !function.adds_one ? 0.0 : 1.0;
      if (has_limit) up = (up > limit ? limit : up < -limit ? -limit : up) + shift;
      reference::store_float(args.out_type, args.out, r * args.width + i,
                             static_cast<float>(factor * up));
    }
  observe_written(args.seen, args.out_type, args.out, args.rows * args.width);
}

void ReferenceBackend::do_multiply_gate(const MultiplyGateArgs& args) {
  const int64_t head_stride = args.gate_stride();
  for (int64_t t = 0; t < args.rows; ++t)
    for (int64_t h = 0; h < args.heads; ++h)
      for (int64_t i = 0; i < args.width; ++i) {
        const int64_t column = h * args.width + i;
        const double x = args.x.data[t * args.x.row_stride + column];
        const int64_t place = h * head_stride + (args.gate_per_head ? 0 : i);
        const float gate = args.gate.data[t * args.gate.row_stride + place];
        reference::store_float(args.out_type, args.out, t * args.heads * args.width + column,
                               static_cast<float>(x * reference::gated(args.function, gate)));
      }
  observe_written(args.seen, args.out_type, args.out, args.rows * args.heads * args.width);
}

void ReferenceBackend::do_add(const AddArgs& args) {
  for (int64_t i = 0; i < args.count; ++i)
    args.out[i] =
        static_cast<float>(args.out[i] + static_cast<double>(args.multiplier) * args.x[i]);
}

namespace {

/// Calls change(number) for each number of each head, in place.
template <class Change>
void change_heads(const HeadsView& x, const Change& change) {
  for (int64_t t = 0; t < x.tokens; ++t)
    for (int64_t i = 0; i < width_of(x); ++i) change(x.data[t * x.row_stride + i]);
}

}  // namespace

void ReferenceBackend::do_scale(const ScaleArgs& args) {
  change_heads(args.x,
               [&](float& x) { x = static_cast<float>(static_cast<double>(args.factor) * x); });
}

void ReferenceBackend::do_clamp(const ClampArgs& args) {
  change_heads(args.x, [limit = args.limit](float& x) {
    x = x > limit ? limit : x < -limit ? -limit : x;  // comparisons that leave a NaN as it is
  });
}

void ReferenceBackend::do_observe_amax(const ObserveAmaxArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const float x = reference::load_float(args.type, args.x, i);
    if (std::isfinite(x))
      *args.amax = std::max(*args.amax, std::fabs(x));
    else
      ++*args.nonfinite;
  }
}

void ReferenceBackend::do_copy_heads(const CopyHeadsArgs& args) {
  for (int64_t t = 0; t < args.out.tokens; ++t)
    for (int64_t h = 0; h < args.out.heads; ++h) {
      const int64_t from = args.x.heads == 1 ? 0 : h;
      const float* x = args.x.data + t * args.x.row_stride + from * args.x.head_dim;
      float* out = args.out.data + t * args.out.row_stride + h * args.out.head_dim;
      for (int64_t d = 0; d < args.width; ++d) out[d] = x[d];
    }
}

void ReferenceBackend::do_route(const RouteArgs& args) {
  choose_experts(args, 0, args.rows);
  sort_by_expert(args);
}

void ReferenceBackend::do_gather_rows(const GatherRowsArgs& args) {
  const size_t bytes = static_cast<size_t>(args.width) * bytes_of(args.type);
  for (int64_t i = 0; i < args.count; ++i)
    std::memcpy(static_cast<std::byte*>(args.out) + static_cast<size_t>(i) * bytes,
                static_cast<const std::byte*>(args.x) + static_cast<size_t>(args.rows[i]) * bytes,
                bytes);
}

void ReferenceBackend::do_combine_rows(const CombineRowsArgs& args) {
  for (int64_t i = 0; i < args.rows * args.per_row; ++i) {
    const int64_t at = (args.places ? args.places[i] : i) - args.first;
    if (at < 0 || at >= args.count) continue;
    const double weight = args.weights ? args.weights[at] : 1.0;
    for (int64_t d = 0; d < args.width; ++d) {
      float& out = args.out[i / args.per_row * args.width + d];
      out = static_cast<float>(out + weight * args.x[at * args.width + d]);
    }
  }
}

namespace {

/// Mean of a row, 0 where it is not asked for, and the mean square of the distances from it.
struct RowMoments {
  double mean = 0.0, variance = 0.0;
};

RowMoments moments(const float* x, int64_t width, bool centered) {
  const double count = static_cast<double>(width);
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; centered && i < width; ++i) sum += x[i];
  const double mean = sum / count;
  for (int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, squares / count};
}

}  // namespace

void ReferenceBackend::do_mix_streams(const MixStreamsArgs& args) {
  const int64_t size = args.rows * args.width;
  for (int64_t p = 0; p < args.streams; ++p)
    for (int64_t at = 0; at < size; ++at) {
      const float* coefficients =
          args.coefficients + (at / args.width * args.streams + p) * args.inputs;
      double sum = args.x ? args.x[p * size + at] : 0.0f;
      for (int64_t q = 0; q < args.inputs; ++q)
        sum += static_cast<double>(coefficients[q]) * args.added[q * size + at];
      args.out[p * size + at] = static_cast<float>(sum);
    }
}

namespace {

/// Divides each sum of `count` numbers, `between` apart, plus epsilon, out of them; sums are `step`
/// apart.
void divide_by_sums(std::vector<double>& pairs, size_t count, size_t between, size_t step,
                    double epsilon) {
  for (size_t i = 0; i < count; ++i) {
    double sum = epsilon;
    for (size_t j = 0; j < count; ++j) sum += pairs[i * step + j * between];
    for (size_t j = 0; j < count; ++j) pairs[i * step + j * between] /= sum;
  }
}

/// The weights [from, to] of the streams before, of their products.
std::vector<double> connected_pairs(const ConnectStreamsArgs& args, std::vector<double> pairs) {
  const auto streams = static_cast<size_t>(args.streams);
  for (size_t from = 0; from < streams; ++from) {
    const auto first = pairs.begin() + static_cast<std::ptrdiff_t>(from * streams);
    const double largest = *std::max_element(first, first + args.streams);
    std::for_each(first, first + args.streams, [&](double& x) { x = std::exp(x - largest); });
  }
  divide_by_sums(pairs, streams, 1, streams, 0.0);
  for (double& x : pairs) x += args.epsilon;
  divide_by_sums(pairs, streams, streams, 1, args.epsilon);
  for (int64_t i = 1; i < args.iterations; ++i) {
    divide_by_sums(pairs, streams, 1, streams, args.epsilon);
    divide_by_sums(pairs, streams, streams, 1, args.epsilon);
  }
  return pairs;
}

}  // namespace

void ReferenceBackend::do_connect_streams(const ConnectStreamsArgs& args) {
  const int64_t streams = args.streams;
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto product = [&](int64_t i, int64_t part) {
      return static_cast<double>(args.x[row * args.width() + i]) * args.scale[part] + args.base[i];
    };
    std::vector<double> pairs;
    for (int64_t i = 2 * streams; i < args.width(); ++i) pairs.push_back(product(i, 2));
    pairs = connected_pairs(args, std::move(pairs));
    float* expand = args.expand + row * streams * (streams + 1);
    for (int64_t to = 0; to < streams; ++to) {
      args.collapse[row * streams + to] =
          static_cast<float>(reference::logistic(product(to, 0)) + args.epsilon);
      for (int64_t from = 0; from < streams; ++from)
        *expand++ = static_cast<float>(pairs[static_cast<size_t>(from * streams + to)]);
      *expand++ = static_cast<float>(2.0 * reference::logistic(product(streams + to, 1)));
    }
  }
}

void ReferenceBackend::do_attend_streams(const AttendStreamsArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto stream = [&](int64_t s) { return args.x + (s * args.rows + row) * args.width; };
    std::vector<double> weights;
    for (int64_t s = 0; s < args.streams; ++s) {
      double squares = 0.0, product = 0.0;
      for (int64_t i = 0; i < args.width; ++i) {
        const double x = stream(s)[i];
        squares += x * x;
        product += x * args.weight[i];
      }
      weights.push_back(product /
                        std::sqrt(squares / static_cast<double>(args.width) + args.epsilon));
    }
    const double largest = *std::ranges::max_element(weights);
    double all = 0.0;
    for (double& weight : weights) all += weight = std::exp(weight - largest);
    for (int64_t i = 0; i < args.width; ++i) {
      double sum = 0.0;
      for (int64_t s = 0; s < args.streams; ++s)
        sum += weights[static_cast<size_t>(s)] / all * stream(s)[i];
      args.out[row * args.width + i] = static_cast<float>(sum);
    }
  }
}

void ReferenceBackend::do_gate_by_keys(const GateByKeysArgs& args) {
  for (int64_t i = 0; i < args.rows * args.streams; ++i) {
    double product = 0.0;
    for (int64_t d = i * args.width; d < (i + 1) * args.width; ++d)
      product += static_cast<double>(args.key[d]) * args.stream[d];
    const double a = product * args.scale;
    const double root = std::sqrt(std::max(std::fabs(a), static_cast<double>(args.floor)));
    const double signed_root = a > 0.0 ? root : a < 0.0 ? -root : a;
    const double gate = 1.0 / (1.0 + std::exp(-signed_root));
    const float* value = args.value + i / args.streams * args.width;
    for (int64_t d = 0; d < args.width; ++d)
      args.out[i * args.width + d] = static_cast<float>(gate * value[d]);
  }
}

void ReferenceBackend::do_match_magnitude(const MatchMagnitudeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    float* x = args.x + row * args.width;
    const double wanted = moments(args.target + row * args.width, args.width, false).variance;
    const double own = moments(x, args.width, false).variance, floor = args.floor;
    const double factor = std::sqrt(wanted) / std::sqrt(own < floor ? floor : own);
    for (int64_t i = 0; i < args.width; ++i) x[i] = static_cast<float>(x[i] * factor);
  }
}

void ReferenceBackend::do_keep_outliers(const KeepOutliersArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    float* x = args.x + row * args.row_stride;
    const auto [mean, variance] = moments(x, args.width, true);
    const double border = mean + std::sqrt(variance) * args.deviations;
    for (int64_t i = 0; i < args.width; ++i) {
      const double above = x[i] - border;
      x[i] = static_cast<float>(above < 0.0 ? 0.0 : above);  // NaN stays
    }
  }
}

namespace {

/// Mean to subtract from each value of a row, and the factor after it.
struct RowScale {
  double mean = 0.0;
  double inverse = 1.0;
};

RowScale row_scale(const float* x, int64_t width, bool centered, float epsilon) {
  const auto [mean, variance] = moments(x, width, centered);
  return {mean, 1.0 / std::sqrt(variance + static_cast<double>(epsilon))};
}

}  // namespace

void ReferenceBackend::do_norm(const NormArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.width;
    const auto [mean, inverse] = row_scale(x, args.width, args.centered, args.epsilon);
    for (int64_t i = 0; i < args.width; ++i) {
      const double bias = args.bias ? args.bias[i] : 0.0f;
      reference::store_float(args.out_type, args.out, r * args.width + i,
                             static_cast<float>((x[i] - mean) * inverse * args.weight[i] + bias));
    }
  }
  observe_written(args.seen, args.out_type, args.out, args.rows * args.width);
}

void ReferenceBackend::do_norm_heads(const NormHeadsArgs& args) {
  const int64_t head_dim = args.x.head_dim;
  for (int64_t t = 0; t < args.x.tokens; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h) {
      float* x = args.x.data + t * args.x.row_stride + h * head_dim;
      const int64_t own = args.weight_per_head ? h * head_dim : 0;
      const auto [mean, inverse] = row_scale(x, head_dim, args.centered, args.epsilon);
      for (int64_t i = 0; i < head_dim; ++i)
        x[i] = static_cast<float>((x[i] - mean) * inverse * args.weight[own + i] +
                                  (args.bias ? args.bias[own + i] : 0.0));
    }
}

void ReferenceBackend::do_gated_norm(const GatedNormArgs& args) {
  const double count = static_cast<double>(args.width);
  std::vector<double> values(static_cast<size_t>(args.width)), gates(values.size());
  for (int64_t t = 0; t < args.rows; ++t)
    for (int64_t g = 0; g < args.groups; ++g) {
      const int64_t first = g * args.width;
      const float* x = args.x.data + t * args.x.row_stride + first;
      const float* gate = args.gate.data + t * args.gate.row_stride + first;
      const float* weight = args.weight + (args.weight_per_group ? first : 0);
      double squares = 0.0;
      for (size_t i = 0; i < values.size(); ++i) {
        gates[i] = reference::gated(args.function, gate[i]);
        values[i] = args.gate_first ? x[i] * gates[i] : x[i];
        squares += values[i] * values[i];
      }
      const double inverse = 1.0 / std::sqrt(squares / count + static_cast<double>(args.epsilon));
      for (size_t i = 0; i < values.size(); ++i)
        reference::store_float(args.out_type, args.out,
                               t * args.groups * args.width + first + static_cast<int64_t>(i),
                               static_cast<float>(values[i] * inverse * weight[i] *
                                                  (args.gate_first ? 1.0 : gates[i])));
    }
  observe_written(args.seen, args.out_type, args.out, args.rows * args.groups * args.width);
}

}  // namespace kvcal
