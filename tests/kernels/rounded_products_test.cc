// Gate and up that a vendor's library rounds to bfloat16 before their activation.
#ifdef KVCAL_TEST_SIMULATED_GPU

#include <algorithm>
#include <cmath>

#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

struct MlpCase {
  ComputeType type = ComputeType::kBFloat16, out_type = ComputeType::kBFloat16;
  bool has_bias = false, is_decoding = false;
  int64_t rows = 37;
};
constexpr int64_t kIn = 64, kWidth = 24;

std::vector<std::byte> inputs(const MlpCase& c) {
  return test::to_elements(test::normal(c.rows * kIn, 1), c.type);
}
std::vector<std::byte> weights(const MlpCase& c) {
  return test::to_elements(test::normal(2 * kWidth * kIn, 2, 0.2f), c.type);
}

std::vector<float> activated(Backend& backend, const MlpCase& c) {
  const std::vector<std::byte> bytes = weights(c);
  const TensorView view{.name = "w",
                        .dtype = c.type == ComputeType::kBFloat16  ? DType::kBF16
                                 : c.type == ComputeType::kFloat16 ? DType::kF16
                                                                   : DType::kF32,
                        .shape = {2 * kWidth, kIn},
                        .bytes = bytes};
  const auto weight = backend.pack({&view, 1}, c.type);
  const test::OnBackend<std::byte> x(backend, inputs(c));
  const test::OnBackend<float> bias(backend, test::normal(2 * kWidth, 3));
  const test::OnBackend<float> scratch(
      backend, std::vector<float>(static_cast<size_t>(c.rows * 2 * kWidth), NAN));
  const test::OnBackend<std::byte> out(
      backend, std::vector<std::byte>(static_cast<size_t>(c.rows * kWidth) * bytes_of(c.out_type)));
  // Two groups of rows, as of two experts.
  const int64_t first = std::min<int64_t>(5, c.rows - 1);
  const float* const biases = c.has_bias ? bias.data() : nullptr;
  const RowGroup groups[] = {{.weight = *weight, .bias = biases, .rows = first},
                             {.weight = *weight, .bias = biases, .rows = c.rows - first}};
  backend.matmul_activate({.x = x.data(),
                           .type = c.type,
                           .groups = groups,
                           .width = kWidth,
                           .scratch = scratch.data(),
                           .out_type = c.out_type,
                           .out = out.data(),
                           .is_decoding = c.is_decoding});
  return test::to_floats(out.values(), c.out_type);
}

/// silu(gate) · up in float64; rounds: gate and up are rounded to bfloat16 first.
std::vector<float> judged(const MlpCase& c, bool rounds) {
  const std::vector<float> x = test::to_floats(inputs(c), c.type);
  const std::vector<float> w = test::to_floats(weights(c), c.type);
  const auto product = [&](int64_t row, int64_t feature) {
    double sum = 0.0;
    for (int64_t k = 0; k < kIn; ++k)
      sum += static_cast<double>(x[static_cast<size_t>(row * kIn + k)]) *
             w[static_cast<size_t>(feature * kIn + k)];
    return rounds ? static_cast<double>(to_float(to_bf16(static_cast<float>(sum)))) : sum;
  };
  std::vector<float> out;
  for (int64_t row = 0; row < c.rows; ++row)
    for (int64_t n = 0; n < kWidth; ++n) {
      const double gate = product(row, n), up = product(row, kWidth + n);
      out.push_back(static_cast<float>(gate / (1.0 + std::exp(-gate)) * up));
    }
  return out;
}

struct WithLibrary {
  WithLibrary() { gpu::simulator::set_vendor_matmul(true); }
  ~WithLibrary() { gpu::simulator::set_vendor_matmul(false); }
  WithLibrary(const WithLibrary&) = delete;
  WithLibrary& operator=(const WithLibrary&) = delete;
};

}  // namespace

TEST_CASE("gate and up are rounded to bfloat16 where the library multiplies in it") {
  const WithLibrary library;
  const auto backend = test::make_backend("simulated");
  const MlpCase c;
  const std::vector<float> actual = activated(*backend, c);
  // The result itself is rounded, by up to 2^-9.
  CHECK(test::agree_relatively(actual, judged(c, true), 0.004, 1e-3));
  CHECK_FALSE(test::agree_relatively(actual, judged(c, false), 0.004, 1e-3));
  CHECK(test::agree_as_sums(actual, judged(c, false), 6e-6));  // three roundings of 2^-9 at most
}

TEST_CASE("gate and up stay in float32 elsewhere") {
  const MlpCase cases[] = {
      {.out_type = ComputeType::kFloat32},
      {.type = ComputeType::kFloat16, .out_type = ComputeType::kFloat16},
      {.type = ComputeType::kFloat32, .out_type = ComputeType::kFloat32},
      {.has_bias = true},
      {.is_decoding = true, .rows = 3},
  };
  for (const MlpCase& c : cases) {
    INFO(name_of(c.type) << ", bias " << c.has_bias << ", decoding " << c.is_decoding);
    const auto without = activated(*test::make_backend("simulated"), c);
    const WithLibrary library;
    const double limit = c.out_type == ComputeType::kFloat32 ? 1e-4 : 0.004;
    CHECK(test::agree_relatively(activated(*test::make_backend("simulated"), c), without, limit,
                                 1e-3));
  }
  const auto without = activated(*test::make_backend("simulated"), {});  // no library
  CHECK(test::agree_relatively(without, judged({}, false), 0.004, 1e-3));
}

}  // namespace kvcal

#endif
