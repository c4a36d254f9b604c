#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/causal_conv.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/logistic-inl.h"

#ifndef KVCAL_KERNELS_CPU_CAUSAL_CONV_ONCE
#define KVCAL_KERNELS_CPU_CAUSAL_CONV_ONCE
namespace kvcal::cpu {

/// Rows [begin, end) of one segment, counted from its first, and channels [first, last).
struct ConvPart {
  size_t segment = 0;
  int64_t begin = 0, end = 0;
  int64_t first = 0, last = 0;
};

/// Row p of a segment from channel `first` on; rows before it are the state's, or zeros.
inline const float* conv_row(const CausalConvArgs& args, const ConvPart& part, int64_t p,
                             const float* zeros) {
  if (p >= 0)
    return args.x.data + (args.segments[part.segment].q_begin + p) * args.x.row_stride + part.first;
  if (!args.state) return zeros;
  const int64_t before = args.kernel - 1;
  return args.state + ((static_cast<int64_t>(part.segment) + 1) * before + p) * args.channels +
         part.first;
}

}  // namespace kvcal::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

/// out = bias + sum over j of weight(j) · rows[j], weight [kernel, width].
template <bool kSilu>
HWY_INLINE void convolve_row(const std::vector<const float*>& rows, const float* weight,
                             const float* bias, int64_t width, float* out) {
  int64_t i = 0;
  for (; i + lanes() <= width; i += lanes()) {
    VF sum = load_as_float(bias + i);
    const float* w = weight + i;
    for (const float* row : rows) {
      sum = hn::MulAdd(load_as_float(w), load_as_float(row + i), sum);
      w += width;
    }
    store_from_float(kSilu ? gate_of<GateFunction::kSilu>(sum) : sum, out + i);
  }
  const int64_t left = width - i;
  if (left == 0) return;
  VF sum = load_part(bias + i, left);
  const float* w = weight + i;
  for (const float* row : rows) {
    sum = hn::MulAdd(load_part(w, left), load_part(row + i, left), sum);
    w += width;
  }
  store_part(kSilu ? gate_of<GateFunction::kSilu>(sum) : sum, out + i, left);
}

void convolve_part(const CausalConvArgs& args, const ConvPart& part) {
  const int64_t width = part.last - part.first, kernel = args.kernel;
  const std::vector<float> zeros(static_cast<size_t>(width));
  std::vector<float> weight(static_cast<size_t>(width * kernel));  // a row a tap
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j < kernel; ++j)
      weight[static_cast<size_t>(j * width + i)] = args.weight[(part.first + i) * kernel + j];
  const float* bias = args.bias ? args.bias + part.first : zeros.data();
  const int64_t stride = args.out_row_stride();
  std::vector<const float*> rows(static_cast<size_t>(kernel));
  for (int64_t t = part.begin; t < part.end; ++t) {
    for (int64_t j = 0; j < kernel; ++j)
      rows[static_cast<size_t>(j)] = conv_row(args, part, t - kernel + 1 + j, zeros.data());
    float* out = args.out + (args.segments[part.segment].q_begin + t) * stride + part.first;
    args.silu ? convolve_row<true>(rows, weight.data(), bias, width, out)
              : convolve_row<false>(rows, weight.data(), bias, width, out);
  }
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(convolve_part);

namespace {

constexpr int64_t kPartChannels = 512, kPartRows = 64;

std::vector<ConvPart> conv_parts(const CausalConvArgs& args) {
  std::vector<ConvPart> parts;
  for (size_t s = 0; s < args.segments.size(); ++s)
    for (int64_t t = 0; t < args.segments[s].q_count; t += kPartRows)
      for (int64_t c = 0; c < args.channels; c += kPartChannels)
        parts.push_back({.segment = s,
                         .begin = t,
                         .end = std::min(args.segments[s].q_count, t + kPartRows),
                         .first = c,
                         .last = std::min(args.channels, c + kPartChannels)});
  return parts;
}

/// Copies the last rows of the segment to the state; reads stay ahead of writes.
void keep_state(const CausalConvArgs& args, size_t segment) {
  const int64_t before = args.kernel - 1, count = args.segments[segment].q_count;
  if (count == 0) return;
  float* state = args.state + static_cast<int64_t>(segment) * before * args.channels;
  for (int64_t i = 0; i < before; ++i)
    std::memcpy(state + i * args.channels,
                conv_row(args, {.segment = segment}, count - before + i, nullptr),
                static_cast<size_t>(args.channels) * sizeof(float));
}

}  // namespace

void CpuBackend::do_causal_conv(const CausalConvArgs& args) {
  const std::vector<ConvPart> parts = conv_parts(args);
  pool_.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t index, int) {
    HWY_DYNAMIC_DISPATCH(convolve_part)(args, parts[static_cast<size_t>(index)]);
  });
  if (!args.state) return;
  pool_.parallel_for(static_cast<int64_t>(args.segments.size()),
                     [&](int64_t index, int) { keep_state(args, static_cast<size_t>(index)); });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
