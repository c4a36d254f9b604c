#include "kernels/gpu/vendor_matmul.h"

#include <algorithm>

#include "kernels/gpu/device.h"

namespace kvcal::gpu {
namespace {

constexpr unsigned kThreads = 256;

__global__ void add_bias_kernel(MatmulProblem problem) {
  const int64_t feature = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (feature >= problem.out_features) return;
  const float bias = problem.bias[feature];
  for (int64_t row = blockIdx.y; row < problem.rows; row += gridDim.y)
    problem.floats()[row * problem.out_stride + feature] += bias;
}

}  // namespace

void run_in_fixed_rows(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem,
                       int64_t rows, const std::function<void(const MatmulProblem&)>& multiply) {
  const int64_t whole = problem.rows / rows * rows;
  for (int64_t first = 0; first < whole; first += rows) multiply(problem.of_rows(first, rows));
  const int64_t rest = problem.rows - whole;
  if (rest == 0) return;
  const MatmulProblem last = problem.of_rows(whole, rest);
  const size_t x_row = static_cast<size_t>(problem.in) * problem.element_bytes();
  const size_t out_bytes_of = bytes_of(problem.out_type);
  const size_t out_row = static_cast<size_t>(problem.out_stride) * out_bytes_of;
  // The last row ends after its outputs, not after its stride.
  const size_t out_bytes = static_cast<size_t>(rest - 1) * out_row +
                           static_cast<size_t>(problem.out_features) * out_bytes_of;
  std::byte* x = memory.take(static_cast<size_t>(rows) * x_row, stream);
  std::byte* out = memory.take(static_cast<size_t>(rows) * out_row, stream);
  stream.copy(x, last.x, static_cast<size_t>(rest) * x_row);
  stream.copy(out, last.out, out_bytes);
  MatmulProblem padded = problem;
  padded.x = x;
  padded.out = out;
  padded.rows = rows;
  multiply(padded);
  stream.copy(last.out, out, out_bytes);
  memory.give_back(x, stream);
  memory.give_back(out, stream);
}

void add_bias(Stream& stream, const MatmulProblem& problem) {
  launch("adding a bias",
         {.stream = stream,
          .blocks = ceil_div(problem.out_features, kThreads),
          .blocks_y = static_cast<unsigned>(std::clamp<int64_t>(problem.rows, 1, 4096)),
          .threads = kThreads},
         add_bias_kernel, problem);
}

}  // namespace kvcal::gpu
