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

struct PlainPanel : Panel {
  explicit PlainPanel(const float* first) : rows(first) {}
  const float* rows;  ///< [width, depth]
};

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

class PlainGemm : public Gemm {
 public:
  explicit PlainGemm(const PanelShape& shape) : shape_(shape) {}

  const PanelShape& shape() const override { return shape_; }
  size_t panel_bytes() const override {
    return static_cast<size_t>(shape_.width * shape_.depth) * sizeof(float);
  }
  int64_t pack_step() const override { return 1; }
  void pack(int64_t first, int64_t count, const void* rows, std::byte* storage,
            int) const override {
    to_floats(rows, count * shape_.depth, shape_.type,
              reinterpret_cast<float*>(storage) + first * shape_.depth);
  }
  std::unique_ptr<Panel> panel_in(std::byte* storage) const override {
    return std::make_unique<PlainPanel>(reinterpret_cast<const float*>(storage));
  }
  int64_t height_for(int64_t rows) const override { return std::min(rows, kDnnTallest); }
  int64_t x_stride() const override { return shape_.depth; }
  int64_t out_stride() const override { return shape_.width; }
  bool runs_in_place() const override { return true; }

  void run(int64_t height, const void* x, const Panel& panel, const GemmResult& result,
           int) const override {
    const float* rows = static_cast<const PlainPanel&>(panel).rows;
    std::vector<float> numbers(static_cast<size_t>(height * shape_.depth));
    to_floats(x, height * shape_.depth, shape_.type, numbers.data());
    for (int64_t row = 0; row < height; ++row)
      for (int64_t i = 0; i < shape_.width; ++i) {
        float& out = result.out[row * result.stride + i];
        const float sum =
            dot(numbers.data() + row * shape_.depth, rows + i * shape_.depth, shape_.depth);
        out = sum + (result.accumulate ? out : result.start ? result.start[i] : 0.0f);
      }
  }

 private:
  PanelShape shape_;
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
