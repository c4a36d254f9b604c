#include <cmath>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"

namespace kvcal {

namespace {

/// Mean to subtract from each value of a row, and the factor after it.
struct RowScale {
  double mean = 0.0;
  double inverse = 1.0;
};

RowScale row_scale(const float* x, int64_t width, bool centered, float epsilon) {
  const double count = static_cast<double>(width);
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < width; ++i) sum += x[i];
  const double mean = centered ? sum / count : 0.0;
  for (int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0 / std::sqrt(squares / count + static_cast<double>(epsilon))};
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
