#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvcal {

/// A fixed set of threads that share the indices of one loop at a time. Threads sleep when idle.
class ThreadPool {
 public:
  /// num_threads counts the caller, who works too; 0 means one a hardware thread. on_start runs
  /// once in each thread of the pool before its first task, and once in the caller.
  explicit ThreadPool(int num_threads, std::function<void()> on_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, thread) for every index in [0, count), in any order, on any thread of
  /// [0, num_threads). Returns when all are done; rethrows the first exception. Not reentrant.
  void parallel_for(int64_t count, const std::function<void(int64_t index, int thread)>& body);

 private:
  void work(int thread);
  void run_indices(int thread);

  std::vector<std::thread> workers_;
  std::function<void()> on_start_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  const std::function<void(int64_t, int)>* body_ = nullptr;
  int64_t next_ = 0, count_ = 0;
  int64_t generation_ = 0;
  int busy_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
};

}  // namespace kvcal
