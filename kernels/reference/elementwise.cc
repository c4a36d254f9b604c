#include <cmath>
#include <numbers>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"

namespace kvcal {

namespace {

/// Source: torch.nn.functional silu and gelu (approximate "none" and "tanh").
double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
  }
  return 0.0;
}

/// Turns the pair (a, b) by one angle.
void turn(float& a, float& b, double cosine, double sine) {
  const double x = a, y = b;
  a = static_cast<float>(x * cosine - y * sine);
  b = static_cast<float>(y * cosine + x * sine);
}

}  // namespace

void ReferenceBackend::embed(const EmbedArgs& args) {
  check_embed(args);
  const int64_t hidden = args.table.shape[1];
  for (size_t row = 0; row < args.ids.size(); ++row)
    for (int64_t i = 0; i < hidden; ++i)
      args.out[static_cast<int64_t>(row) * hidden + i] =
          args.multiplier * reference::load_float(args.table.dtype, args.table.bytes.data(),
                                                  args.ids[row] * hidden + i);
}

void ReferenceBackend::rms_norm(const RmsNormArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.width;
    double squares = 0.0;
    for (int64_t i = 0; i < args.width; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double mean = squares / static_cast<double>(args.width);
    const double inverse = 1.0 / std::sqrt(mean + static_cast<double>(args.epsilon));
    for (int64_t i = 0; i < args.width; ++i)
      reference::store_float(args.out_type, args.out, r * args.width + i,
                             static_cast<float>(x[i] * inverse * args.weight[i]));
  }
}

void ReferenceBackend::rope(const RopeArgs& args) {
  check_rope(args);
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

void ReferenceBackend::gated_activation(const GatedActivationArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* gate = args.gate_up + r * 2 * args.width;
    const float* up = gate + args.width;
    for (int64_t i = 0; i < args.width; ++i)
      reference::store_float(args.out_type, args.out, r * args.width + i,
                             static_cast<float>(activated(args.activation, gate[i]) * up[i]));
  }
}

}  // namespace kvcal
