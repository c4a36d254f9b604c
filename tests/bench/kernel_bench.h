#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "bench/machine_rate.h"
#include "kernels/backends.h"

// What the kernels' benchmarks share. Rates are by processor time of all threads, since machines
// are shared; each stands beside the machine's own limit, measured in the same run.
namespace kvcal::bench {

inline Backend& backend(int64_t threads) {
  static std::map<int64_t, std::unique_ptr<Backend>> made;
  auto& entry = made[threads];
  if (!entry) entry = kBackends.at("cpu")({.num_threads = static_cast<int>(threads)});
  return *entry;
}

inline std::vector<float> values(int64_t count) {
  std::vector<float> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  return result;
}

inline void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

inline void set_share(benchmark::State& state, const char* name, double per_iteration,
                      double limit) {
  state.counters[name] = benchmark::Counter(100 * per_iteration / limit,
                                            benchmark::Counter::kIsIterationInvariantRate);
}

/// The processor's limit for products a second of processor time, measured within the last seconds:
/// it changes with what else the machine does.
inline double recent_rate(ComputeType type, int64_t threads) {
  using Clock = std::chrono::steady_clock;
  struct Measured {
    double rate = 0;
    Clock::time_point when = {};
  };
  static std::map<std::pair<ComputeType, int64_t>, Measured> all;
  Measured& last = all[{type, threads}];
  if (last.rate == 0 || Clock::now() - last.when > std::chrono::seconds(15))
    last = {machine_rate(type, static_cast<int>(threads)).flop_per_cpu_second, Clock::now()};
  return last.rate;
}

/// GF/s, and percent of the processor's limit on as many threads.
inline void set_flop(benchmark::State& state, double flop, ComputeType type, int64_t threads) {
  const double rate = recent_rate(type, threads);
  set_rate(state, "GF/s", flop);
  set_share(state, "of_limit_%", flop, rate);
}

/// Bytes a memcpy on one thread moves in a second of processor time: those it reads and those it
/// writes, as many as `bytes` together. The best of some.
inline double copy_rate(double bytes) {
  static std::map<size_t, double> rates;
  const auto half = static_cast<size_t>(bytes / 2);
  double& rate = rates[half];
  if (rate > 0) return rate;
  std::vector<std::byte> from(half, std::byte{1}), to(half, std::byte{2});
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 20; ++i) {
    const double begin = process_cpu_seconds();
    std::memcpy(to.data(), from.data(), half);
    benchmark::ClobberMemory();
    best = std::min(best, process_cpu_seconds() - begin);
  }
  rate = 2.0 * static_cast<double>(half) / best;
  return rate;
}

/// GB/s of all that is read and written once, and percent of a copy of as many bytes.
inline void set_bytes(benchmark::State& state, double bytes) {
  set_rate(state, "GB/s", bytes);
  set_share(state, "of_copy_%", bytes, copy_rate(bytes));
}

}  // namespace kvcal::bench
