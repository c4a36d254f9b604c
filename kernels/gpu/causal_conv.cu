#include <algorithm>

#include "kernels/gpu/functions.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/row_access.h"

namespace kvcal::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kRowsOfThread = 16;

struct DeviceConv {
  CausalConvArgs args;
  const Segment* segments = nullptr;
  int64_t segment_count = 0;
};

/// Start of row p of the segment; rows before the segment come from the state. Null: zeros.
__device__ const float* conv_row(const CausalConvArgs& args, const Segment& segment,
                                 const float* state, int64_t p) {
  if (p >= 0) return args.x.data + (segment.q_begin + p) * args.x.row_stride;
  return state ? state + (p + args.kernel - 1) * args.channels : nullptr;
}

/// Four channels of one row. With kKernel, the kernel's size is known and weights[j] holds the j-th
/// weight of each channel; else weights are read from memory.
template <int kKernel, bool kAligned>
__device__ Four convolved(const CausalConvArgs& args, const Segment& segment, const float* state,
                          int64_t t, int64_t c, const Four* weights) {
  const int64_t kernel = kKernel > 0 ? kKernel : args.kernel, left = args.channels - c;
  Four sum{};
  if (args.bias) sum = load_four<kAligned>(args.bias + c, left);
  for (int64_t j = 0; j < kernel; ++j) {
    const float* row = conv_row(args, segment, state, t - (kernel - 1) + j);
    Four x{};
    if (row) x = load_four<kAligned>(row + c, left);
    KVCAL_UNROLL
    for (int i = 0; i < 4; ++i) {
      float weight = 0.0f;
      if (kKernel > 0)
        weight = weights[j].values[i];
      else if (i < left)
        weight = args.weight[(c + i) * kernel + j];
      sum.values[i] = fmaf(weight, x.values[i], sum.values[i]);
    }
  }
  if (args.silu) {
    KVCAL_UNROLL
    for (int i = 0; i < 4; ++i) sum.values[i] *= logistic(sum.values[i]);
  }
  return sum;
}

/// Threads along x take channels, four each, then runs of kRowsOfThread rows.
template <int kKernel, bool kAligned>
__global__ void conv_kernel(DeviceConv conv) {
  const CausalConvArgs& args = conv.args;
  const Place place =
      place_of(int64_t{blockIdx.x} * blockDim.x + threadIdx.x, ceil_div(args.channels, 4));
  const int64_t c = 4 * place.piece, first = place.row * kRowsOfThread;
  Four weights[kKernel > 0 ? kKernel : 1] = {};
  if constexpr (kKernel > 0)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < kKernel; ++j)
        if (c + i < args.channels) weights[j].values[i] = args.weight[(c + i) * kKernel + j];
  const int64_t state_size = (args.kernel - 1) * args.channels;
  for (int64_t s = blockIdx.y; s < conv.segment_count; s += gridDim.y) {
    const Segment segment = conv.segments[s];
    const float* state = args.state ? args.state + s * state_size : nullptr;
    const int64_t end = smaller(first + kRowsOfThread, segment.q_count);
    for (int64_t t = first; t < end; ++t)
      store_four<kAligned>(args.out + (segment.q_begin + t) * args.out_stride + c,
                           convolved<kKernel, kAligned>(args, segment, state, t, c, weights),
                           args.channels - c);
  }
}

/// Copies the last rows of each segment to its state.
__global__ void conv_state_kernel(DeviceConv conv) {
  const CausalConvArgs& args = conv.args;
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, before = args.kernel - 1;
  if (c >= args.channels) return;
  for (int64_t s = blockIdx.y; s < conv.segment_count; s += gridDim.y) {
    const Segment segment = conv.segments[s];
    float* state = args.state + s * before * args.channels;
    for (int64_t i = 0; i < before; ++i)  // reads at or behind what it writes
      state[i * args.channels + c] =
          conv_row(args, segment, state, segment.q_count - before + i)[c];
  }
}

}  // namespace

void GpuBackend::do_causal_conv(const CausalConvArgs& asked) {
  if (asked.segments.empty()) return;
  DeviceConv conv{.args = asked,
                  .segments = on_device(asked.segments),
                  .segment_count = static_cast<int64_t>(asked.segments.size())};
  CausalConvArgs& args = conv.args;
  args.out_stride = args.out_row_stride();
  int64_t longest = 0;
  for (const Segment& segment : asked.segments) longest = std::max(longest, segment.q_count);
  const auto segments_y = static_cast<unsigned>(std::min<int64_t>(conv.segment_count, 65535));
  const int64_t threads = ceil_div(args.channels, 4) * ceil_div(longest, kRowsOfThread);
  const Launch where{.stream = stream(),
                     .blocks = ceil_div(threads, kThreads),
                     .blocks_y = segments_y,
                     .threads = kThreads};
  const bool aligned = args.channels % 4 == 0 && holds_fours(args.x.data, args.x.row_stride) &&
                       holds_fours(args.out, args.out_stride) && holds_fours(args.bias) &&
                       holds_fours(args.state);
  with_flag(aligned, [&](auto is_aligned) {
    constexpr bool kAligned = decltype(is_aligned)::value;
    if (args.kernel == 4)
      launch("causal_conv", where, conv_kernel<4, kAligned>, conv);
    else
      launch("causal_conv", where, conv_kernel<0, kAligned>, conv);
  });
  if (!args.state || args.kernel == 1) return;
  launch("causal_conv's state",
         {.stream = stream(),
          .blocks = ceil_div(args.channels, kThreads),
          .blocks_y = segments_y,
          .threads = kThreads},
         conv_state_kernel, conv);
}

}  // namespace kvcal::gpu
