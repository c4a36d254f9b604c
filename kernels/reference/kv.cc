#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"
#include "quant/magnitude_histogram.h"

namespace kvcal {

namespace {

/// Folds one head of one token into range and bins; returns whether all its values are finite.
bool fold(const float* x, int64_t count, ObservedRange& range, uint64_t* bins) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) {
      finite = false;
      continue;
    }
    const float value = x[i] + 0.0f;  // -0 becomes +0, so that equal extremes have equal bytes
    range.min = std::min(range.min, value);
    range.max = std::max(range.max, value);
    if (bins) ++bins[MagnitudeHistogram::bin_of(value)];
  }
  return finite;
}

}  // namespace

void ReferenceBackend::do_observe_kv(const ObserveKvArgs& args) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (size_t s = 0; s < args.segments.size(); ++s) {
    const Segment& segment = args.segments[s];
    for (int64_t h = 0; h < args.x.heads; ++h) {
      ObservedRange range{.min = kInfinity, .max = -kInfinity, .first_nonfinite = -1};
      uint64_t* bins = args.histogram ? args.histogram + h * MagnitudeHistogram::kBins : nullptr;
      for (int64_t t = 0; t < segment.q_count; ++t) {
        const float* x =
            args.x.data + (segment.q_begin + t) * args.x.row_stride + h * args.x.head_dim;
        const bool finite = fold(x, args.x.head_dim, range, bins);
        if (!finite && range.first_nonfinite < 0) range.first_nonfinite = static_cast<int32_t>(t);
      }
      args.ranges[static_cast<int64_t>(s) * args.x.heads + h] = range;
    }
  }
}

void ReferenceBackend::do_store_kv(const StoreKvArgs& args) {
  const bool quantized = is_fp8(args.dtype);
  const float largest = quantized ? fp8::max_value(fp8_format(args.dtype)) : 0.0f;
  for (int64_t t = 0; t < args.x.tokens; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h)
      for (int64_t d = 0; d < args.x.head_dim; ++d) {
        const float x = args.x.data[t * args.x.row_stride + h * args.x.head_dim + d];
        const float scale = quantized ? args.scales[h] : 1.0f;
        reference::store_kv(args.dtype, args.out, (t * args.x.heads + h) * args.x.head_dim + d, x,
                            scale);
        if (quantized && args.saturated && std::isfinite(x) && std::fabs(x / scale) > largest)
          ++args.saturated[h];
      }
}

void ReferenceBackend::do_simulate_cache(const SimulateCacheArgs& args) {
  for (int64_t t = 0; t < args.x.tokens; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h)
      round_trip(args.format, args.x.data + t * args.x.row_stride + h * args.x.head_dim,
                 args.x.head_dim, args.scales ? args.scales[h] : 1.0f);
}

void ReferenceBackend::do_load_kv(const LoadKvArgs& args) {
  const int64_t head_dim = args.head_dim;
  for (int64_t row = 0; row < args.rows * args.heads; ++row) {
    const float scale = is_fp8(args.dtype) ? args.scales[row % args.heads] : 1.0f;
    for (int64_t i = row * head_dim; i < (row + 1) * head_dim; ++i)
      reference::store_float(args.out_type, args.out, i,
                             reference::load_kv(args.dtype, args.x, i, scale));
  }
}

std::unique_ptr<Backend> make_reference_backend(const BackendOptions&) {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace kvcal
