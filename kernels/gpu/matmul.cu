// Products with weights on the device: by the vendor's library if present, else by the kernels
// here.
#include <algorithm>

#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/gpu_matrix.h"
#include "kernels/gpu/kv_number.h"

namespace kvcal::gpu {

namespace {

constexpr unsigned kThreads = 256;

KVCAL_HD inline float to_float(fp8::E4m3Fn code) {
  return number_of(code);
}
using gpu::to_float;

// ---- the tiled product ----

constexpr int kTile = 64, kDepth = 16, kPerThread = 4;

struct Tiles {
  float x[kDepth][kTile + 4];
  float weight[kDepth][kTile + 4];
};

struct OutArgs {
  ProductScales scales;
  const float* bias;
  float* out;
  bool accumulate;
  int64_t rows, in, out_features, stride;
};

__device__ inline void write_out(const OutArgs& args, int64_t row, int64_t feature, float sum) {
  if (row >= args.rows || feature >= args.out_features) return;
  if (args.scales.x) sum *= args.scales.x[args.scales.per_row ? row : 0];
  if (args.scales.weight) sum *= args.scales.weight[args.scales.per_feature ? feature : 0];
  if (args.bias) sum += args.bias[feature];
  float& out = args.out[row * args.stride + feature];
  out = args.accumulate ? out + sum : sum;
}

/// Loads kTile rows of elements, kDepth of each, transposed into shared memory; zeros outside.
template <class T>
__device__ inline void load_tile(const T* from, int64_t first_row, int64_t rows, int64_t first,
                                 int64_t in, float (&tile)[kDepth][kTile + 4]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
    const int k = i % kDepth, row = i / kDepth;
    const bool inside = first_row + row < rows && first + k < in;
    tile[k][row] = inside ? to_float(from[(first_row + row) * in + first + k]) : 0.0f;
  }
}

/// Sums run along k from 0 to in, for any rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    matmul_kernel(const T* x, const T* weight, OutArgs args) {
  KVCAL_SHARED(Tiles, tiles);
  const int64_t first_row = int64_t{blockIdx.x} * kTile, first_out = int64_t{blockIdx.y} * kTile;
  const int across = static_cast<int>(threadIdx.x) % 16 * kPerThread;
  const int down = static_cast<int>(threadIdx.x) / 16 * kPerThread;
  float sums[kPerThread][kPerThread] = {};
  for (int64_t k = 0; k < args.in; k += kDepth) {
    load_tile(x, first_row, args.rows, k, args.in, tiles.x);
    load_tile(weight, first_out, args.out_features, k, args.in, tiles.weight);
    __syncthreads();
    for (int depth = 0; depth < kDepth; ++depth)
      for (int i = 0; i < kPerThread; ++i)
        for (int j = 0; j < kPerThread; ++j)
          sums[i][j] = fmaf(tiles.x[depth][down + i], tiles.weight[depth][across + j], sums[i][j]);
    __syncthreads();
  }
  for (int i = 0; i < kPerThread; ++i)
    for (int j = 0; j < kPerThread; ++j)
      write_out(args, first_row + down + i, first_out + across + j, sums[i][j]);
}

// ---- few rows: a warp an output, the weight read once ----

/// kRows: 1, or kFewRows, the last of which may not exist.
template <class T, int kVector, int kRows>
__global__ void __launch_bounds__(kThreads)
    few_rows_kernel(const T* x, const T* weight, OutArgs args) {
  const int64_t feature = int64_t{blockIdx.x} * (kThreads / kWarp) + warp();
  float sums[kRows] = {};
  if (feature < args.out_features) {
    KVCAL_UNROLL_BY(4)
    for (int64_t k = lane() * kVector; k < args.in; k += kWarp * kVector) {
      const auto w = *reinterpret_cast<const Pack<T, kVector>*>(weight + feature * args.in + k);
      KVCAL_UNROLL
      for (int row = 0; row < kRows; ++row) {
        if (kRows > 1 && row >= args.rows) continue;
        const auto values = *reinterpret_cast<const Pack<T, kVector>*>(x + row * args.in + k);
        KVCAL_UNROLL
        for (int i = 0; i < kVector; ++i)
          sums[row] = fmaf(to_float(values.values[i]), to_float(w.values[i]), sums[row]);
      }
    }
  }
  KVCAL_UNROLL
  for (int row = 0; row < kRows; ++row) {
    const float sum = warp_sum(sums[row]);
    if (lane() == 0) write_out(args, row, feature, sum);
  }
}

template <class T>
void launch_few_rows(const MatmulProblem& problem, const OutArgs& args, Stream& stream) {
  constexpr int kVector = static_cast<int>(16 / sizeof(T));
  const Launch where{.stream = stream,
                     .blocks = ceil_div(args.out_features, kThreads / kWarp),
                     .threads = kThreads};
  const bool by_vector = args.in % kVector == 0 && is_aligned(problem.x, 16);
  const bool is_one = args.rows == 1;
  const auto kernel =
      by_vector ? (is_one ? few_rows_kernel<T, kVector, 1> : few_rows_kernel<T, kVector, kFewRows>)
                : (is_one ? few_rows_kernel<T, 1, 1> : few_rows_kernel<T, 1, kFewRows>);
  launch("matmul of few rows", where, kernel, static_cast<const T*>(problem.x),
         static_cast<const T*>(problem.weight), args);
}

/// Calls body(T{}) with the C++ type of x's and the weight's elements.
template <class Body>
void with_element(const MatmulProblem& problem, const Body& body) {
  if (problem.is_fp8) return body(fp8::E4m3Fn{});
  with_type(problem.type, body);
}

}  // namespace

void multiply_own(const MatmulProblem& problem, Stream& stream) {
  const OutArgs args{problem.scales, problem.bias, problem.floats(),     problem.accumulate,
                     problem.rows,   problem.in,   problem.out_features, problem.out_stride};
  with_element(problem, [&]<class T>(T) {
    if (has_few_rows(problem)) return launch_few_rows<T>(problem, args, stream);
    const int64_t outs = ceil_div(args.out_features, kTile);
    // The grid's y is limited; outputs beyond it need another launch.
    for (int64_t first = 0; first < outs; first += 65535) {
      OutArgs part = args;
      part.out += first * kTile;
      if (part.bias) part.bias += first * kTile;
      if (part.scales.per_feature) part.scales.weight += first * kTile;
      part.out_features -= first * kTile;
      launch("matmul",
             {.stream = stream,
              .blocks = ceil_div(args.rows, kTile),
              .blocks_y = static_cast<unsigned>(std::min<int64_t>(outs - first, 65535)),
              .threads = kThreads},
             matmul_kernel<T>, static_cast<const T*>(problem.x),
             static_cast<const T*>(problem.weight) + first * kTile * args.in, part);
    }
  });
}

void GpuBackend::await_upload(const GpuMatrix& weight) {
  if (weight.number <= awaited_) return;
  stream();
  const WatchedOperation watched(watch_, PartClock::kWait);
  compute_.wait(weight.ready);  // uploads are in order: this one stands for all before
  awaited_ = weight.number;
}

namespace {

const GpuMatrix& checked(const PackedMatrix& weight) {
  const auto* matrix = dynamic_cast<const GpuMatrix*>(&weight);
  KVCAL_CHECK(matrix != nullptr && !matrix->is_fp8);
  return *matrix;
}

}  // namespace

void GpuBackend::multiply(const MatmulProblem& problem, Stream& on) {
  if (vendor_ && !has_few_rows(problem) && vendor_->takes(problem))
    vendor_->run(on, memory_, problem);
  else
    multiply_own(problem, on);
}

void GpuBackend::do_matmul(const MatmulArgs& args) {
  if (args.rows == 0) return;
  const GpuMatrix& weight = checked(args.weight);
  await_upload(weight);
  multiply(problem_of(args, weight), stream());
}

void GpuBackend::multiply_all(std::span<const MatmulProblem> problems) {
  // A recording follows one stream.
  if (memory_.is_closed() || (vendor_ && !vendor_->runs_side_by_side())) {
    for (const MatmulProblem& problem : problems) multiply(problem, stream());
    return;
  }
  sides_.run(stream(), problems.size(), [&](size_t i, Stream& on) { multiply(problems[i], on); });
}

std::vector<MatmulProblem> GpuBackend::problems_of(const MatmulGroupsArgs& args) {
  std::vector<MatmulProblem> problems;
  for (const MatmulArgs& product : products_of(args)) {
    const GpuMatrix& weight = checked(product.weight);
    await_upload(weight);
    problems.push_back(problem_of(product, weight));
  }
  return problems;
}

void GpuBackend::do_matmul_groups(const MatmulGroupsArgs& args) {
  multiply_all(problems_of(args));
}

bool GpuBackend::multiply_rounded(const MatmulGroupsArgs& args) {
  if (!vendor_ || args.is_decoding || args.type != ComputeType::kBFloat16) return false;
  std::vector<MatmulProblem> problems = problems_of(args);
  for (MatmulProblem& problem : problems) {
    const auto first = static_cast<size_t>(problem.floats() - args.out);
    problem.out = reinterpret_cast<std::byte*>(args.out) + first * sizeof(BF16);
    problem.out_type = ComputeType::kBFloat16;
    if (problem.bias || !vendor_->takes(problem)) return false;
  }
  multiply_all(problems);
  return true;
}

}  // namespace kvcal::gpu
