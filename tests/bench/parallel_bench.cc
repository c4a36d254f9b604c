// What a loop of the thread pool costs beside its work: an operation of a small model has one.
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "core/parallel.h"

using kvcal::ThreadPool;

namespace {

void work_for(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// Loops of state.range(1) indices of state.range(2) microseconds each on state.range(0) threads,
/// with state.range(3) microseconds between two loops.
void parallel_for(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const std::chrono::microseconds body(state.range(2)), between(state.range(3));
  for (auto _ : state) {
    pool.parallel_for(state.range(1), [&](int64_t, int) { work_for(body); });
    work_for(between);
  }
}

}  // namespace

BENCHMARK(parallel_for)
    ->ArgNames({"threads", "indices", "us", "us_between"})
    ->ArgsProduct({{1, 2, 8}, {2, 64}, {0}, {0}})
    ->ArgsProduct({{2}, {2}, {50}, {0, 10, 200}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

BENCHMARK_MAIN();
