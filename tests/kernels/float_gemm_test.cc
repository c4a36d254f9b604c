// Products by float32's multiply-adds: the bytes of one fma after the other, whatever the
// processor's vectors, the heights and the widths.
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/targets.h"

#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

struct Case {
  int64_t depth = 1, width = 1, height = 1;
  bool has_start = false, accumulate = false;
};

const std::vector<Case> kCases{
    {.depth = 1, .width = 1, .height = 1},
    {.depth = 77, .width = 17, .height = 5, .has_start = true},
    {.depth = 321, .width = 96, .height = 14, .accumulate = true},
    {.depth = 576, .width = 65, .height = 30, .has_start = true},
    {.depth = 1000, .width = 33, .height = 224, .accumulate = true},
    {.depth = 1024, .width = 40, .height = 29, .has_start = true},  // rows that lie pages apart
};

/// Element i of a buffer of type as a number.
float element(const std::vector<std::byte>& bytes, ComputeType type, int64_t i) {
  const auto at = static_cast<size_t>(i);
  return type == ComputeType::kFloat32 ? reinterpret_cast<const float*>(bytes.data())[at]
                                       : to_float(reinterpret_cast<const BF16*>(bytes.data())[at]);
}

void check(const Case& c, ComputeType type) {
  INFO(c.height << " x " << c.depth << " x " << c.width << " in " << name_of(type));
  const auto x = test::to_elements(test::normal(c.height * c.depth, 1), type);
  const auto weight = test::to_elements(test::normal(c.width * c.depth, 2), type);
  const auto start = test::normal(c.width, 3);
  const int64_t stride = c.width + 3;
  const auto before = test::normal(c.height * stride, 4);
  std::vector<float> expected = before, actual = before;
  for (int64_t m = 0; m < c.height; ++m)
    for (int64_t n = 0; n < c.width; ++n) {
      float& sum = expected[static_cast<size_t>(m * stride + n)];
      if (!c.accumulate) sum = c.has_start ? start[static_cast<size_t>(n)] : 0.0f;
      for (int64_t k = 0; k < c.depth; ++k)
        sum = std::fma(element(x, type, m * c.depth + k), element(weight, type, n * c.depth + k),
                       sum);
    }

  const auto gemm = cpu::make_float_gemm({.type = type, .depth = c.depth, .width = c.width});
  const cpu::Gemm::Layout& layout = gemm->layout();
  std::vector<std::byte> panel(layout.panel_bytes + 64);
  auto* aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(panel.data()) + 63) / 64 * 64);
  const auto row_bytes = static_cast<size_t>(c.depth) * bytes_of(type);
  for (int64_t row = 0; row < c.width; row += layout.pack_step)
    gemm->pack(row, std::min(layout.pack_step, c.width - row),
               weight.data() + static_cast<size_t>(row) * row_bytes, aligned, 0);
  for (int64_t row = 0; row < c.height;) {
    const int64_t height = gemm->height_for(c.height - row);
    gemm->run(height, x.data() + static_cast<size_t>(row) * row_bytes, aligned,
              {.out = actual.data() + row * stride,
               .stride = stride,
               .start = c.has_start ? start.data() : nullptr,
               .accumulate = c.accumulate},
              0);
    row += height;
  }
  CHECK(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) == 0);
}

/// What a cpu backend's products in float32 write, for one target: plain, with a bias, added to
/// what was there.
std::vector<std::byte> backend_bytes(int64_t target, int threads, const Case& c) {
  const test::OnlyTargets only(target);
  const auto backend = kBackends.at("cpu")({.num_threads = threads});
  const auto x = test::normal(c.height * c.depth, 1), weight = test::normal(c.width * c.depth, 2);
  const auto bias = test::normal(c.width, 3);
  const std::vector<TensorView> views{
      {"w", DType::kF32, Shape{c.width, c.depth}, std::as_bytes(std::span(weight))}};
  const auto packed = backend->pack(views, ComputeType::kFloat32);
  std::vector<std::byte> all;
  const Buffer out = backend->allocate(static_cast<size_t>(c.height * c.width) * sizeof(float));
  for (const auto& [is_biased, accumulate] :
       {std::pair{false, false}, {true, false}, {true, true}}) {
    backend->matmul({.x = x.data(),
                     .weight = *packed,
                     .bias = is_biased ? bias.data() : nullptr,
                     .accumulate = accumulate,
                     .rows = c.height,
                     .out = out.as<float>()});
    all.insert(all.end(), out.data(), out.data() + out.size());
  }
  return all;
}

}  // namespace

TEST_CASE("float products: one fused multiply-add after the other, on every processor that fuses") {
  int targets = 0;
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    if (target > HWY_AVX2) continue;  // those before AVX2 round each product
    ++targets;
    const test::OnlyTargets only(target);
    INFO(hwy::TargetName(target));
    for (const Case& c : kCases)
      for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) check(c, type);
  }
  CHECK((targets > 0 || (hwy::SupportedTargets() & HWY_AVX2) == 0));
}

TEST_CASE("float products: matmul's bytes are equal on every processor that fuses") {
  const std::vector<Case> cases{
      {.depth = 300, .width = 130, .height = 1},
      {.depth = 576, .width = 640, .height = 31},
      {.depth = 2048, .width = 1100, .height = 17},   // rows that lie pages apart
      {.depth = 33, .width = 1024, .height = 1100}};  // written past the caches
  for (const Case& c : cases) {
    INFO(c.height << " x " << c.depth << " x " << c.width);
    std::vector<std::byte> first;
    for (const int64_t target : test::fusing_targets()) {
      INFO(hwy::TargetName(target));
      const auto bytes = backend_bytes(target, first.empty() ? 1 : 2, c);
      if (first.empty()) first = bytes;
      CHECK(bytes == first);
    }
  }
}

}  // namespace kvcal
