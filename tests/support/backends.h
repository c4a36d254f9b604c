#pragma once

#include <hwy/targets.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quant/half.h"
#include "support/backend_list.h"
#include "support/catch.h"

namespace kvcal::test {

/// Limits the vector instructions that later calls choose from; back to all at the end.
class OnlyTargets {
 public:
  explicit OnlyTargets(int64_t targets) { hwy::SetSupportedTargetsForTest(targets); }
  ~OnlyTargets() { hwy::SetSupportedTargetsForTest(0); }
  OnlyTargets(const OnlyTargets&) = delete;
  OnlyTargets& operator=(const OnlyTargets&) = delete;
};

/// Sets of instructions that this machine has, that are compiled, and that multiply and add in one
/// rounding, best first.
inline std::vector<int64_t> fusing_targets() {
  std::vector<int64_t> targets;
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1)
    if (const int64_t target = rest & -rest; target <= HWY_AVX2) targets.push_back(target);
  return targets;
}

/// Runs body(backend) for every backend but the reference: with each set of vector instructions
/// that this machine has, one thread; then with two and three threads; the simulated GPU with its
/// threads in every order, with and without a vendor's matrix library. Only devices if
/// only_devices().
template <class Body>
void for_each_backend(const Body& body) {
  const std::vector<std::string> here = backend_names();
  for (const auto& [name, make] : kBackends.rows()) {
    if (name == "reference" || (only_devices() && !is_device(name))) continue;
    if (name == gpu_device_name()) {  // without a device, the test gpu_device tells
      if (std::ranges::find(here, name) != here.end()) body(*make({}));
      continue;
    }
    std::string last;
    const int64_t all = hwy::SupportedTargets();
    for (int64_t rest = all; rest != 0; rest &= rest - 1) {  // best first
      const OnlyTargets only(rest);
      const auto backend = make({.num_threads = 1});
      if (backend->description() == last) continue;  // a set that was not compiled
      last = backend->description();
      INFO(last);
      body(*backend);
    }
    for (const int threads : {2, 3}) {
      const auto backend = make({.num_threads = threads});
      INFO(backend->description());
      body(*backend);
    }
  }
#ifdef KVCAL_TEST_SIMULATED_GPU
  using gpu::simulator::Order;
  for (const auto& [order, name] : {std::pair{Order::kForward, "simulated GPU"},
                                    {Order::kReverse, "simulated GPU, reversed"},
                                    {Order::kGreedy, "simulated GPU, warp by warp"}}) {
    gpu::simulator::set_order(order);
    gpu::simulator::set_vendor_matmul(order == Order::kReverse);
    const auto backend = make_backend("simulated");
    INFO(name);
    body(*backend);
  }
  gpu::simulator::set_order(Order::kForward);
  gpu::simulator::set_vendor_matmul(false);
#endif
}

/// An array in a backend's memory.
template <class T>
class OnBackend {
 public:
  OnBackend(Backend& backend, const std::vector<T>& values)
      : backend_(backend), count_(values.size()), buffer_(backend.allocate(count_ * sizeof(T))) {
    backend.copy_in(std::as_bytes(std::span(values)), buffer_.data());
  }
  T* data() const { return buffer_.as<T>(); }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    backend_.copy_out(buffer_.data(), std::as_writable_bytes(std::span(result)));
    return result;
  }

 private:
  Backend& backend_;
  size_t count_;
  Buffer buffer_;
};

constexpr ComputeType kComputeTypes[] = {ComputeType::kFloat32, ComputeType::kBFloat16,
                                         ComputeType::kFloat16};

/// Limit for results rounded to type: two codes may lie on either side of a halfway point.
constexpr double rounding_of(ComputeType type) {
  return type == ComputeType::kFloat32 ? 1e-5 : type == ComputeType::kBFloat16 ? 0x1p-7 : 0x1p-10;
}

/// values as elements of type, and back.
inline std::vector<std::byte> to_elements(const std::vector<float>& values, ComputeType type) {
  std::vector<std::byte> bytes(values.size() * bytes_of(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half =
        type == ComputeType::kFloat16 ? to_f16(values[i]).bits : to_bf16(values[i]).bits;
    const void* element =
        type == ComputeType::kFloat32 ? static_cast<const void*>(&values[i]) : &half;
    std::memcpy(bytes.data() + i * bytes_of(type), element, bytes_of(type));
  }
  return bytes;
}
inline std::vector<float> to_floats(const std::vector<std::byte>& bytes, ComputeType type) {
  std::vector<float> values(bytes.size() / bytes_of(type));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    if (type == ComputeType::kFloat32)
      std::memcpy(&values[i], bytes.data() + i * 4, 4);
    else
      std::memcpy(&half, bytes.data() + i * 2, 2);
    if (type == ComputeType::kBFloat16) values[i] = to_float(BF16{half});
    if (type == ComputeType::kFloat16) values[i] = to_float(F16{half});
  }
  return values;
}

}  // namespace kvcal::test
