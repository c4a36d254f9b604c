#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>

#include "core/error.h"
#include "support/catch.h"

using kvcal::ThreadPool;

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
