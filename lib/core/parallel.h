// Threads live inside kernels, and the size of a tile of work does not depend on their number,
// so outputs are the same byte for byte for any number of threads. Between operations the
// threads spin for 60 µs before they sleep. With one thread for each CPU they are pinned; the
// caller's is not, because threads that it starts later, such as the one that reads the next
// layer, would inherit its CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace kvcal {

/// A fixed set of threads that share the indices of one loop at a time. After a loop they spin for
/// some tens of microseconds, since the next loop usually comes soon, and then sleep; with more
/// threads than CPUs they sleep at once. With one thread for each CPU, each thread of the pool is
/// pinned to a CPU.
class ThreadPool {
 public:
  /// num_threads includes the caller, who works too; 0 means one a CPU. on_start runs once in each
  /// thread of the pool before its first task, and once in the caller. Throws Error where a thread
  /// cannot be started.
  explicit ThreadPool(int num_threads, std::function<void()> on_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, thread) for every index in [0, count), in any order, on any thread of [0,
  /// num_threads). Each thread begins with the same part of every loop, so that data of the
  /// previous loop is in its cache, and then helps the others. Returns when all are done; rethrows
  /// the first exception, after which no further index begins. Not reentrant.
  void parallel_for(int64_t count, const std::function<void(int64_t index, int thread)>& body);

 private:
  void start(int num_threads);
  void stop();
  void work(int thread);
  bool enter();
  void leave();
  void run_indices(int thread);
  struct Part;
  void run_part(Part& part, int thread);
  void wake(int64_t count);
  template <class IsDone>
  void spin_until(const IsDone& is_done) const;

  std::vector<std::thread> workers_;
  std::function<void()> on_start_;
  bool spins_ = false;
  // State of the current loop; written while no worker is inside.
  const std::function<void(int64_t, int)>* body_ = nullptr;
  std::exception_ptr error_;
  std::atomic<bool> has_failed_ = false, stopping_ = false;
  // Written by many threads, so each has its own cache line.
  struct alignas(64) Part {
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };
  std::vector<Part> parts_;  ///< of the indices, one a thread
  /// Number of loops begun; sleeping workers wait for a change.
  alignas(64) std::atomic<uint32_t> generation_ = 0;
  /// Number of workers inside the loop, and kOpen while more may enter. A worker that wakes too
  /// late finds it closed, so nobody waits for it.
  alignas(64) std::atomic<uint32_t> gate_ = 0;
};

}  // namespace kvcal
