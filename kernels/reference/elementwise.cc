#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"

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
      if (function.limit > 0.0f) {
        const double limit = function.limit;  // comparisons that leave a NaN as it is
        gate = gate > limit ? limit : gate;
        up = (up > limit ? limit : up < -limit ? -limit : up) + 1.0;
      }
      reference::store_float(args.out_type, args.out, r * args.width + i,
                             static_cast<float>(activated(function, gate) * up));
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

void ReferenceBackend::do_scale(const ScaleArgs& args) {
  for (int64_t t = 0; t < args.x.tokens; ++t)
    for (int64_t i = 0; i < args.x.heads * args.x.head_dim; ++i) {
      float& x = args.x.data[t * args.x.row_stride + i];
      x = static_cast<float>(static_cast<double>(args.factor) * x);
    }
}

void ReferenceBackend::do_clamp(const ClampArgs& args) {
  const float limit = args.limit;
  for (int64_t t = 0; t < args.x.tokens; ++t)
    for (int64_t i = 0; i < args.x.heads * args.x.head_dim; ++i) {
      float& x = args.x.data[t * args.x.row_stride + i];
      x = x > limit ? limit : x < -limit ? -limit : x;  // comparisons that leave a NaN as it is
    }
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

}  // namespace kvcal
