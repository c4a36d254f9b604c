#include "bench/machine_rate.h"

#include <omp.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "core/error.h"
#ifndef KVCAL_NO_ONEDNN
#include "kernels/cpu/onednn_gemm.h"
#endif
#include "quant/half.h"

namespace kvcal::bench {
namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// CPUs of the process as it was started: threads that the backend pins hand theirs on.
const cpu_set_t kAllowed = [] {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}();

/// The middle of repeats, at least five and as many as take a quarter of a second: what is kept
/// up, as the runs that are compared with it must.
MachineRate middle_rate(double flop, std::string source, const std::function<void()>& body) {
  body();  // makes and warms what is made once
  std::vector<double> by_wall, by_cpu;
  const double end = seconds_of(CLOCK_MONOTONIC) + 0.25;
  while (by_wall.size() < 5 || seconds_of(CLOCK_MONOTONIC) < end) {
    const double wall = seconds_of(CLOCK_MONOTONIC), cpu = process_cpu_seconds();
    body();
    by_wall.push_back(flop / (seconds_of(CLOCK_MONOTONIC) - wall));
    by_cpu.push_back(flop / (process_cpu_seconds() - cpu));
  }
  return {middle_of(by_wall), middle_of(by_cpu), std::move(source)};
}

/// Normal numbers: zeros would multiply at another clock rate.
std::vector<std::byte> random_matrix(int64_t size, ComputeType type) {
  std::vector<std::byte> bytes(static_cast<size_t>(size * size) * bytes_of(type));
  uint32_t state = 1;
  for (size_t i = 0; i < static_cast<size_t>(size * size); ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    if (type == ComputeType::kFloat32) {
      reinterpret_cast<float*>(bytes.data())[i] = value;
    } else {
      reinterpret_cast<BF16*>(bytes.data())[i] = to_bf16(value);
    }
  }
  return bytes;
}

#ifdef KVCAL_NO_ONEDNN
MachineRate onednn_rate_here(ComputeType, int64_t) {
  return {};
}
#else
MachineRate onednn_rate_here(ComputeType type, int64_t size) {
  using Memory = dnnl::memory;
  const auto in = type == ComputeType::kFloat32 ? Memory::data_type::f32 : Memory::data_type::bf16;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const Memory::dims dims{size, size}, strides{size, 1};
  const Memory::desc x_desc(dims, in, strides), out_desc(dims, Memory::data_type::f32, strides);
  const auto description =
      cpu::describe_matmul(engine, x_desc, {dims, in, Memory::format_tag::any}, out_desc);
  std::vector<std::byte> x = random_matrix(size, type);
  Memory plain(x_desc, engine, x.data());
  Memory packed(description.weights_desc(), engine), out(out_desc, engine);
  Memory scratchpad(description.scratchpad_desc(), engine);
  dnnl::reorder(plain, packed).execute(stream, plain, packed);
  const dnnl::matmul product(description);
  const double n = static_cast<double>(size);
  return middle_rate(2 * n * n * n, "oneDNN " + std::to_string(size), [&] {
    product.execute(stream, {{DNNL_ARG_SRC, plain},
                             {DNNL_ARG_WEIGHTS, packed},
                             {DNNL_ARG_DST, out},
                             {DNNL_ARG_SCRATCHPAD, scratchpad}});
    stream.wait();
  });
}
#endif

}  // namespace

double process_cpu_seconds() {
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double seconds_since_process_start() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  // The name in parentheses may hold spaces; the start, in ticks since boot, is the 20th behind it.
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return seconds_of(CLOCK_BOOTTIME) - std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void MachineRate::take_larger(const MachineRate& other) {
  if (other.flop_per_second > flop_per_second) {
    flop_per_second = other.flop_per_second;
    source = other.source;
  }
  flop_per_cpu_second = std::max(flop_per_cpu_second, other.flop_per_cpu_second);
}

MachineRate onednn_rate(ComputeType type, int64_t size, int num_threads) {
  // In a thread of its own: the number of OpenMP's threads is the calling thread's setting, which
  // the backend has set to one.
  MachineRate rate;
  std::exception_ptr error;
  std::thread([&] {
    try {
      sched_setaffinity(0, sizeof(kAllowed), &kAllowed);
      omp_set_num_threads(num_threads);
      rate = onednn_rate_here(type, size);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  return rate;
}

Product::Product(Backend& backend, ComputeType type, int64_t size)
    : backend_(backend), size_(size) {
  const std::vector<std::byte> w = random_matrix(size, ComputeType::kBFloat16);
  const std::vector<TensorView> views{{"w", DType::kBF16, Shape{size, size}, w}};
  weight_ = backend.pack(views, type);
  const std::vector<std::byte> values = random_matrix(size, type);
  x_ = backend.allocate(values.size());
  backend.copy_in(values, x_.data());
  out_ = backend.allocate(static_cast<size_t>(size * size) * sizeof(float));
}

double Product::flop() const {
  const double n = static_cast<double>(size_);
  return 2 * n * n * n;
}

void Product::run() {
  backend_.matmul({.x = x_.data(), .weight = *weight_, .rows = size_, .out = out_.as<float>()});
}

MachineRate backend_rate(Backend& backend, ComputeType type, int64_t size) {
  Product product(backend, type, size);
  return middle_rate(product.flop(), "kvcal " + std::to_string(size), [&] { product.run(); });
}

MachineRate machine_rate(Backend& backend, ComputeType type, int num_threads) {
  MachineRate best;
  for (const int64_t size : {2048, 4096}) {
    best.take_larger(onednn_rate(type, size, num_threads));
    best.take_larger(backend_rate(backend, type, size));
  }
  return best;
}

}  // namespace kvcal::bench
