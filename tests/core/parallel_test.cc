#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <stdexcept>

#include "core/error.h"
#include "core/process.h"
#include "support/catch.h"

using kvcal::ThreadPool;

namespace {

/// CPU time of all threads of this process.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The CPUs each thread of a pool may use while it runs.
std::vector<int> cpus_of_threads(ThreadPool& pool) {
  std::vector<int> counts(static_cast<size_t>(pool.num_threads()));
  std::atomic<int> arrived = 0;
  // Every thread stays in its index until all have come, so that each has one.
  pool.parallel_for(pool.num_threads(), [&](int64_t, int thread) {
    counts[static_cast<size_t>(thread)] = static_cast<int>(kvcal::allowed_cpus().size());
    ++arrived;
    while (arrived < pool.num_threads()) std::this_thread::yield();
  });
  return counts;
}

}  // namespace

TEST_CASE("parallel_for: every index runs once, on a thread of the pool") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.num_threads() == threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      std::atomic<bool> is_thread_known = true;
      pool.parallel_for(count, [&](int64_t index, int thread) {
        ++runs[static_cast<size_t>(index)];
        if (thread < 0 || thread >= threads) is_thread_known = false;
      });
      INFO(threads << " threads, " << count << " indices");
      CHECK(is_thread_known);
      CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& n) { return n == 1; }));
    }
  }
  CHECK(ThreadPool(0).num_threads() >= 1);
}

TEST_CASE("parallel_for: an exception comes out, and the pool goes on") {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> runs = 0;
      try {
        pool.parallel_for(1000, [&](int64_t index, int) {
          ++runs;
          if (index == 3) kvcal::fail("index ", index);
        });
        FAIL("no exception");
      } catch (const kvcal::Error& error) {
        CHECK(error.message() == "index 3");
      }
      CHECK(runs >= 4);
      CHECK(runs <= 1000);
    }
    std::atomic<int64_t> sum = 0;
    pool.parallel_for(100, [&](int64_t index, int) { sum += index; });
    CHECK(sum == 4950);
  }
}

TEST_CASE("parallel_for: of many exceptions one comes out") {
  ThreadPool pool(4);
  CHECK_THROWS_AS(pool.parallel_for(100, [](int64_t, int) { throw std::runtime_error("each"); }),
                  std::runtime_error);
}

TEST_CASE("parallel_for: what the indices wrote is seen afterwards") {
  ThreadPool pool(3);
  std::vector<int64_t> values(4096);
  for (int round = 1; round <= 20; ++round) {
    pool.parallel_for(static_cast<int64_t>(values.size()),
                      [&](int64_t index, int) { values[static_cast<size_t>(index)] += index; });
    CHECK(values[4095] == 4095 * round);
  }
}

TEST_CASE("ThreadPool: on_start runs once in each thread") {
  std::atomic<int> starts = 0;
  {
    ThreadPool pool(3, [&] { ++starts; });
    pool.parallel_for(100, [](int64_t, int) {});
  }
  CHECK(starts == 3);
}

TEST_CASE("parallel_for: loops that follow each other at any distance lose no index") {
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    std::atomic<int64_t> sum = 0;
    int64_t expected = 0;
    for (int round = 0; round < 2000; ++round) {
      const int64_t count = round % 11;
      pool.parallel_for(count, [&](int64_t index, int) { sum += index + 1; });
      expected += count * (count + 1) / 2;
      // Now before the others sleep, now after.
      if (round % 400 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (sum != expected) FAIL("round " << round << " of " << threads << " threads");
    }
    CHECK(sum == expected);
  }
}

TEST_CASE("ThreadPool: an idle pool takes no CPU time") {
  ThreadPool pool(static_cast<int>(std::max<size_t>(2, kvcal::allowed_cpus().size())));
  pool.parallel_for(1000, [](int64_t, int) {});
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(cpu_seconds() - before < 0.02);
}

TEST_CASE("ThreadPool: more threads than CPUs do not wait by spinning") {
  const auto cpus = static_cast<int>(kvcal::allowed_cpus().size());
  ThreadPool pool(4 * cpus);
  constexpr int kLoops = 500;
  const double before = cpu_seconds();
  for (int loop = 0; loop < kLoops; ++loop) pool.parallel_for(8, [](int64_t, int) {});
  // A thread that spun until its turn would take a scheduler's slice, some milliseconds, a loop.
  CHECK(cpu_seconds() - before < kLoops * 1e-3 * std::max(1, cpus / 2));
}

TEST_CASE("ThreadPool: threads keep to a CPU only where there is one for each") {
  const std::vector<int> cpus = kvcal::allowed_cpus();
  REQUIRE_FALSE(cpus.empty());
  const auto all = static_cast<int>(cpus.size());
  if (all > 1) {
    ThreadPool full(all);
    std::vector<int> expected(cpus.size(), 1);
    expected[0] = all;  // the caller's
    CHECK(cpus_of_threads(full) == expected);
  }
  ThreadPool over(all + 1);
  CHECK(cpus_of_threads(over) == std::vector<int>(cpus.size() + 1, all));
  CHECK(kvcal::allowed_cpus() == cpus);
}
