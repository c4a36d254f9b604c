#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_backend.h"

namespace kvcal {
namespace {

double mean_square(const float* x, int64_t width) {
  double sum = 0.0;
  for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum / static_cast<double>(width);
}

}  // namespace

void ReferenceBackend::do_mix_streams(const MixStreamsArgs& args) {
  const int64_t size = args.rows * args.width;
  for (int64_t p = 0; p < args.streams; ++p)
    for (int64_t at = 0; at < size; ++at) {
      const float* coefficients =
          args.coefficients + (at / args.width * args.streams + p) * args.inputs;
      double sum = args.x[p * size + at];
      for (int64_t q = 0; q < args.inputs; ++q)
        sum += static_cast<double>(coefficients[q]) * args.added[q * size + at];
      args.out[p * size + at] = static_cast<float>(sum);
    }
}

void ReferenceBackend::do_match_magnitude(const MatchMagnitudeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    float* x = args.x + row * args.width;
    const double wanted = mean_square(args.target + row * args.width, args.width);
    const double own = mean_square(x, args.width), floor = args.floor;
    const double factor = std::sqrt(wanted) / std::sqrt(own < floor ? floor : own);
    for (int64_t i = 0; i < args.width; ++i) x[i] = static_cast<float>(x[i] * factor);
  }
}

void ReferenceBackend::do_keep_outliers(const KeepOutliersArgs& args) {
  const auto count = static_cast<double>(args.width);
  for (int64_t row = 0; row < args.rows; ++row) {
    float* x = args.x + row * args.row_stride;
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < args.width; ++i) sum += x[i];
    const double mean = sum / count;
    for (int64_t i = 0; i < args.width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double border = mean + std::sqrt(squares / count) * args.deviations;
    for (int64_t i = 0; i < args.width; ++i) {
      const double above = x[i] - border;
      x[i] = static_cast<float>(above < 0.0 ? 0.0 : above);  // NaN stays
    }
  }
}

}  // namespace kvcal
