// Products of builds without oneDNN (KVCAL_ONEDNN=OFF): loops that are correct and slow.
#ifdef KVCAL_NO_ONEDNN

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu/onednn_gemm.h"
#include "quant/half.h"

namespace kvcal::cpu {

namespace {

/// Elements of type as numbers.
void to_floats(const void* elements, int64_t count, ComputeType type, float* out) {
  if (type == ComputeType::kFloat32) {
    std::memcpy(out, elements, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* halves = static_cast<const BF16*>(elements);
  std::transform(halves, halves + count, out, [](BF16 half) { return to_float(half); });
}

/// The sum of products in an order that is the same for every row.
float dot(const float* x, const float* w, int64_t depth) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> sums{};
  int64_t at = 0;
  for (; at + kLanes <= depth; at += kLanes)
    for (int64_t i = 0; i < kLanes; ++i) sums[static_cast<size_t>(i)] += x[at + i] * w[at + i];
  for (; at < depth; ++at) sums[0] += x[at] * w[at];
  return std::accumulate(sums.begin(), sums.end(), 0.0f);
}

/// A panel is [width, depth].
class PlainGemm : public Gemm {
 public:
  explicit PlainGemm(const PanelShape& shape)
      : Gemm({.shape = shape,
              .panel_bytes = static_cast<size_t>(shape.width * shape.depth) * sizeof(float),
              .pack_step = 1,
              .x_stride = shape.depth,
              .out_stride = shape.width,
              .runs_in_place = true}) {}

  void pack(int64_t first, int64_t count, const void* rows, std::byte* panel, int) const override {
    const auto& [type, depth, width] = layout_.shape;
    to_floats(rows, count * depth, type, reinterpret_cast<float*>(panel) + first * depth);
  }
  int64_t height_for(int64_t rows) const override { return std::min(rows, kDnnTallest); }

  void run(int64_t height, const void* x, const std::byte* panel, const GemmResult& result,
           int) const override {
    const auto& [type, depth, width] = layout_.shape;
    const auto* rows = reinterpret_cast<const float*>(panel);
    std::vector<float> numbers(static_cast<size_t>(height * depth));
    to_floats(x, height * depth, type, numbers.data());
    for (int64_t row = 0; row < height; ++row)
      for (int64_t i = 0; i < width; ++i) {
        float& out = result.out[row * result.stride + i];
        const float sum = dot(numbers.data() + row * depth, rows + i * depth, depth);
        out = sum + (result.accumulate ? out : result.start ? result.start[i] : 0.0f);
      }
  }
};

}  // namespace

std::string dnn_implementation(const DnnSession&, ComputeType) {
  return "plain";
}

std::unique_ptr<Gemm> make_dnn_gemm(DnnSession&, const PanelShape& shape) {
  return std::make_unique<PlainGemm>(shape);
}

}  // namespace kvcal::cpu

#endif
