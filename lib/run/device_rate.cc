#include "run/device_rate.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "core/interrupt.h"

namespace kvcal {
namespace {

/// The rate of a whole forward pass beside that of its products alone: the rest is norms, RoPE,
/// softmax, and smaller matrices.
constexpr double kPartOfProducts = 0.5;
/// On one thread: softmax of two models in double precision, and their KL.
constexpr double kSecondsPerLogit = 12e-9;

/// A program that shares a processor waits for a time slice, some milliseconds long. So a spell is
/// shorter than a slice, that at least one has none of the others' time, and all of them together
/// are long enough that each program has its turn. A GPU answers late, and has no slices.
struct Spells {
  double each, all;  ///< seconds
  int fewest;
};
constexpr Spells kOfHost{.each = 0.001, .all = 0.3, .fewest = 5};
constexpr Spells kOfGpu{.each = 0.02, .all = 0.1, .fewest = 5};
constexpr double kQuiet = 0.8;  ///< share from which the machine counts as ours alone

/// Products of matrices of this type, by which the device's speed is told.
class Products {
 public:
  Products(Backend& backend, ComputeType type)
      : backend_(backend), rows_(backend.is_host() ? 64 : 256) {
    std::vector<float> values(static_cast<size_t>(kSize * kSize), 0.5f);
    const std::vector<TensorView> parts{
        {"w", DType::kF32, Shape{kSize, kSize}, std::as_bytes(std::span(values))}};
    weight_ = backend.pack(parts, type);
    x_ = backend.allocate(count() * bytes_of(type));
    backend.fill_zero(x_.data(), count() * bytes_of(type));
    out_ = backend.allocate(count() * sizeof(float));
    host_.resize(count());
    seconds_of(1);  // the first one prepares
  }

  double flop() const { return 2.0 * static_cast<double>(rows_ * kSize * kSize); }

  double seconds_of(int times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i)
      backend_.matmul({.x = x_.data(), .weight = *weight_, .rows = rows_, .out = out_.as<float>()});
    if (!backend_.is_host())  // waits for the device
      backend_.copy_out(out_.data(), std::as_writable_bytes(std::span(host_)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  static constexpr int64_t kSize = 1024;
  size_t count() const { return static_cast<size_t>(rows_ * kSize); }

  Backend& backend_;
  int64_t rows_;
  std::unique_ptr<PackedMatrix> weight_;
  Buffer x_, out_;
  std::vector<float> host_;
};

}  // namespace

DeviceRate measure_rate(Backend& backend, ComputeType type, int threads) {
  const Spells& spells = backend.is_host() ? kOfHost : kOfGpu;
  Products products(backend, type);
  int times = 1;
  for (double passed = products.seconds_of(times); passed < spells.each / 2;
       passed = products.seconds_of(times))
    times *= 2;
  double all = 0.0, least = std::numeric_limits<double>::infinity();
  int count = 0;
  for (; count < spells.fewest || all < spells.all; ++count) {
    throw_if_interrupted();
    const double passed = products.seconds_of(times);
    all += passed;
    least = std::min(least, passed);
  }
  const double share = std::min(1.0, least * count / all);
  return {.flop = kPartOfProducts * products.flop() * times / least,
          .share = share >= kQuiet ? 1.0 : share,
          .logit_seconds = kSecondsPerLogit / static_cast<double>(threads)};
}

}  // namespace kvcal
