#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

/// Most threads for a row.
constexpr int64_t kMostThreads = 1024;

template <bool kAligned>
__global__ void mix_streams_kernel(MixStreamsArgs args) {
  const int64_t pieces = ceil_div(args.width, 4), size = args.rows * args.width;
  for_pieces(args.streams * args.rows * pieces, [&](int64_t index) {
    const Place place = place_of(index, pieces);
    const Place row = place_of(place.row, args.rows);  // its stream, and which row it is
    const int64_t i = 4 * place.piece, left = args.width - i, at = row.piece * args.width + i;
    const float* coefficients =
        args.coefficients + (row.piece * args.streams + row.row) * args.inputs;
    Four sum = load_four<kAligned>(args.x + row.row * size + at, left);
    for (int64_t q = 0; q < args.inputs; ++q) {
      const Four added = load_four<kAligned>(args.added + q * size + at, left);
      KVCAL_UNROLL
      for (int j = 0; j < 4; ++j)
        sum.values[j] = fmaf(coefficients[q], added.values[j], sum.values[j]);
    }
    store_four<kAligned>(args.out + row.row * size + at, sum, left);
  });
}

/// Mean over a row of function(value), for a block that owns the row.
template <class Function>
__device__ inline float row_mean(const float* x, int64_t width, const Function& function) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += function(x[i]);
  return block_sum(sum) / static_cast<float>(width);
}

/// One block per row.
__global__ void match_magnitude_kernel(MatchMagnitudeArgs args) {
  float* x = args.x + int64_t{blockIdx.x} * args.width;
  const float* target = args.target + int64_t{blockIdx.x} * args.width;
  const auto square = [](float value) { return value * value; };
  const float wanted = row_mean(target, args.width, square);
  const float own = row_mean(x, args.width, square);
  const float factor = sqrtf(wanted) / sqrtf(own < args.floor ? args.floor : own);  // NaN stays
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) x[i] *= factor;
}

/// One block per row.
__global__ void keep_outliers_kernel(KeepOutliersArgs args) {
  float* x = args.x + int64_t{blockIdx.x} * args.row_stride;
  const float mean = row_mean(x, args.width, [](float value) { return value; });
  const float variance =
      row_mean(x, args.width, [mean](float value) { return (value - mean) * (value - mean); });
  const float border = mean + sqrtf(variance) * args.deviations;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float above = x[i] - border;
    x[i] = above < 0.0f ? 0.0f : above;  // NaN stays
  }
}

/// A block a row, of as many threads as the row's width alone asks for.
Launch row_launch(Stream& stream, int64_t rows, int64_t width) {
  const int64_t threads = smaller<int64_t>(kMostThreads, ceil_div(width, int64_t{kWarp}) * kWarp);
  return {.stream = stream, .blocks = rows, .threads = static_cast<unsigned>(threads)};
}

}  // namespace

void GpuBackend::do_mix_streams(const MixStreamsArgs& args) {
  const bool aligned = args.width % 4 == 0 && holds_fours(args.x) && holds_fours(args.added) &&
                       holds_fours(args.out);
  const int64_t pieces = args.streams * args.rows * ceil_div(args.width, 4);
  const Launch where = pieces_launch(stream(), pieces, properties_);
  with_flag(aligned, [&](auto is_aligned) {
    launch("mix_streams", where, mix_streams_kernel<decltype(is_aligned)::value>, args);
  });
}

void GpuBackend::do_match_magnitude(const MatchMagnitudeArgs& args) {
  if (args.rows == 0) return;
  launch("match_magnitude", row_launch(stream(), args.rows, args.width), match_magnitude_kernel,
         args);
}

void GpuBackend::do_keep_outliers(const KeepOutliersArgs& args) {
  if (args.rows == 0) return;
  launch("keep_outliers", row_launch(stream(), args.rows, args.width), keep_outliers_kernel, args);
}

}  // namespace kvcal::gpu
