#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/backends.h"
#include "quant/half.h"
#ifdef KVCAL_BENCH_GPU
#include "kernels/gpu/make_gpu_backend.h"
#endif

namespace kvcal::bench {

/// A backend with a clock and random data. "simulated" works where the tests' device is linked.
class Device {
 public:
  Device(const std::string& name, bool is_quick, BackendOptions options = {})
      : is_quick_(is_quick) {
    const size_t colon = name.find(':');
    if (colon != std::string::npos)
      std::from_chars(name.data() + colon + 1, name.data() + name.size(), options.device_index);
#ifdef KVCAL_BENCH_GPU
    is_gpu_ = name == "simulated" || name.substr(0, colon) == gpu_device_name();
    if (name == "simulated") backend_ = make_gpu_backend(options);
#endif
    if (!backend_) backend_ = kBackends.at(name.substr(0, colon))(options);
  }
  Backend& backend() {
    return *backend_;
  }
  /// Gives the backend away: nothing else of this may be called then.
  std::unique_ptr<Backend> release() {
    return std::move(backend_);
  }

  /// Median of several runs after a warm-up.
  double milliseconds(const std::function<void()>& body) {
    body();
    std::vector<double> times;
    double all = 0.0;
    while (times.size() < 3 || (!is_quick_ && all < 200.0 && times.size() < 200)) {
      times.push_back(std::max(once(body), 1e-6));
      all += times.back();
    }
    std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                     times.end());
    return times[times.size() / 2];
  }

  void copy(const Buffer& from, const Buffer& to) {
#ifdef KVCAL_BENCH_GPU
    if (is_gpu_) return gpu_copy(*backend_, from.data(), to.data(), from.size());
#endif
    std::memcpy(to.data(), from.data(), from.size());
  }

  template <class T>
  Buffer upload(const std::vector<T>& values) {
    Buffer buffer = backend_->allocate(values.size() * sizeof(T));
    backend_->copy_in(std::as_bytes(std::span(values)), buffer.data());
    return buffer;
  }
  Buffer random_floats(int64_t count) {
    return repeat(count * 4, [&](size_t n) {
      std::vector<float> values(n / 4);
      for (float& value : values) value = next();
      return values;
    });
  }
  Buffer random_bf16(int64_t count) {
    return repeat(count * 2, [&](size_t n) {
      std::vector<BF16> values(n / 2);
      for (BF16& value : values) value = to_bf16(next());
      return values;
    });
  }
  /// Numbers, or FP8 codes of small numbers.
  Buffer random_cache(int64_t count, KvDType dtype) {
    if (dtype == KvDType::kFloat32) return random_floats(count);
    if (dtype == KvDType::kBFloat16) return random_bf16(count);
    return repeat(count, [&](size_t n) {
      std::vector<uint8_t> codes(n);
      for (uint8_t& code : codes)
        code = static_cast<uint8_t>((random_() & 0x80) | (0x30 + random_() % 24));
      return codes;
    });
  }
  std::unique_ptr<PackedMatrix> random_weight(int64_t out, int64_t in, ComputeType type) {
    std::vector<BF16> values(static_cast<size_t>(out * in));
    std::vector<BF16> some(std::min<size_t>(values.size(), kRepeated));
    for (BF16& value : some) value = to_bf16(next() * 0.02f);
    for (size_t i = 0; i < values.size(); ++i) values[i] = some[i % some.size()];
    const TensorView view{"w", DType::kBF16, Shape{out, in}, std::as_bytes(std::span(values))};
    return backend_->pack(std::span(&view, 1), type);
  }

 private:
  /// Random numbers are made for this many elements and repeated behind them.
  static constexpr size_t kRepeated = (size_t{1} << 20) + 7;

  float next() {
    return normal_(random_);
  }

  double once(const std::function<void()>& body) {
#ifdef KVCAL_BENCH_GPU
    if (is_gpu_) return gpu_milliseconds(*backend_, body);
#endif
    const auto begin = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  }

  template <class Make>
  Buffer repeat(int64_t bytes, const Make& make) {
    Buffer buffer = backend_->allocate(static_cast<size_t>(bytes));
    const size_t all = buffer.size(), part = std::min(all, kRepeated * 4);
    const auto values = make(part);
    const auto host = std::as_bytes(std::span(values));
    for (size_t begin = 0; begin < all; begin += host.size())
      backend_->copy_in(host.first(std::min(host.size(), all - begin)), buffer.data() + begin);
    return buffer;
  }

  std::unique_ptr<Backend> backend_;
  bool is_gpu_ = false, is_quick_ = false;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

}  // namespace kvcal::bench
