#include "run/device_rate.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace kvcal {
namespace {

/// The rate of a whole forward pass beside that of its products alone: the rest is norms, RoPE,
/// softmax, and smaller matrices.
constexpr double kPartOfProducts = 0.5;
/// On one thread: softmax of two models in double precision, and their KL.
constexpr double kSecondsPerLogit = 12e-9;

constexpr int kSpells = 5;
constexpr double kSpellSeconds = 0.02;

/// Products per second of matrices of this type.
double product_rate(Backend& backend, ComputeType type) {
  constexpr int64_t kRows = 256, kSize = 1024;
  std::vector<float> values(static_cast<size_t>(kSize * kSize), 0.5f);
  const std::vector<TensorView> parts{
      {"w", DType::kF32, Shape{kSize, kSize}, std::as_bytes(std::span(values))}};
  const auto weight = backend.pack(parts, type);
  const Buffer x = backend.allocate(static_cast<size_t>(kRows * kSize) * bytes_of(type));
  backend.fill_zero(x.data(), static_cast<size_t>(kRows * kSize) * bytes_of(type));
  const Buffer out = backend.allocate(static_cast<size_t>(kRows * kSize) * sizeof(float));
  std::vector<float> host(static_cast<size_t>(kRows * kSize));
  const auto multiply = [&](int times) {
    for (int i = 0; i < times; ++i)
      backend.matmul({.x = x.data(), .weight = *weight, .rows = kRows, .out = out.as<float>()});
    backend.copy_out(out.data(), std::as_writable_bytes(std::span(host)));
  };
  multiply(1);
  using Clock = std::chrono::steady_clock;
  // The fastest of some spells: other programs only make one slower.
  double most = 0.0;
  int times = 1;
  for (int spell = 0; spell < kSpells;) {
    const auto begin = Clock::now();
    multiply(times);
    const std::chrono::duration<double> passed = Clock::now() - begin;
    if (passed.count() < kSpellSeconds) {
      times *= 2;
      continue;
    }
    most = std::max(most, times / passed.count());
    ++spell;
  }
  return 2.0 * static_cast<double>(kRows * kSize * kSize) * most;
}

}  // namespace

DeviceRate measure_rate(Backend& backend, ComputeType type, int threads) {
  return {.flop = kPartOfProducts * product_rate(backend, type),
          .logit_seconds = kSecondsPerLogit / static_cast<double>(threads)};
}

}  // namespace kvcal
