#include "launch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "schedule.h"

namespace kvcal::ptx {
namespace {

int thread_count() {
  static const int count = [] {
    const char* const asked = std::getenv("KVCAL_PTX_THREADS");
    const int number =
        asked ? std::atoi(asked) : static_cast<int>(std::thread::hardware_concurrency());
    if (asked && number < 1)
      stop(std::string("KVCAL_PTX_THREADS is '") + asked + "', expected a number from 1 on");
    return std::max(number, 1);
  }();
  return count;
}

/// Threads that run the same work beside the caller. They live until the process ends.
class Pool {
 public:
  explicit Pool(int helpers) : helpers_(helpers) {
    for (int i = 0; i < helpers; ++i) std::thread([this] { serve(); }).detach();
  }

  /// Runs work on all threads; returns when all have returned from it.
  void run(const std::function<void()>& work) {
    {
      const std::lock_guard lock(mutex_);
      work_ = &work;
      ++round_;
      running_ = helpers_;
    }
    begun_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  void serve() {
    for (uint64_t seen = 0;;) {
      std::unique_lock lock(mutex_);
      begun_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      const std::function<void()>& work = *work_;
      lock.unlock();
      work();
      lock.lock();
      if (--running_ == 0) ended_.notify_all();
    }
  }

  const int helpers_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void()>* work_ = nullptr;
  uint64_t round_ = 0;
  int running_ = 0;
};

/// What a thread keeps from block to block and from launch to launch.
struct Worker {
  std::vector<std::byte> files, local;
  SharedMemory shared;
};

/// Runs blocks until none is left.
void run_blocks(const Kernel& kernel, const Grid& grid, const std::byte* parameters,
                std::atomic<uint64_t>& next) {
  static thread_local Worker worker;
  Block block{.kernel = kernel, .parameters = parameters};
  std::copy_n(grid.blocks, 3, block.grid);
  std::copy_n(grid.threads, 3, block.threads);
  const uint32_t threads = block.thread_count();
  const size_t file_bytes = size_t{threads / kLanes} * kernel.file_bytes;
  worker.files.resize(std::max(worker.files.size(), file_bytes + 64));
  std::byte* const files =
      worker.files.data() + (64 - reinterpret_cast<uintptr_t>(worker.files.data()) % 64);
  for (uint32_t w = 0; w < threads / kLanes; ++w)
    write_constants(kernel, files + size_t{w} * kernel.file_bytes);
  std::swap(block.shared, worker.shared);
  const uint64_t count = uint64_t{grid.blocks[0]} * grid.blocks[1] * grid.blocks[2];
  for (uint64_t i = next++; i < count; i = next++) {
    const uint64_t index = runs_in_reverse() ? count - 1 - i : i;
    block.index[0] = static_cast<uint32_t>(index % grid.blocks[0]);
    block.index[1] = static_cast<uint32_t>(index / grid.blocks[0] % grid.blocks[1]);
    block.index[2] = static_cast<uint32_t>(index / grid.blocks[0] / grid.blocks[1]);
    block.shared.reset(kernel.dynamic_base + static_cast<uint32_t>(grid.dynamic_shared));
    block.local.assign(size_t{threads} * kernel.local_bytes, std::byte{0xff});
    block.warpgroups.clear();
    run_block(block, files);
  }
  std::swap(block.shared, worker.shared);
}

}  // namespace

void run_kernel(const Kernel& kernel, const Grid& grid, const std::vector<std::byte>& parameters) {
  std::atomic<uint64_t> next{0};
  const std::function<void()> work = [&] { run_blocks(kernel, grid, parameters.data(), next); };
  const uint64_t count = uint64_t{grid.blocks[0]} * grid.blocks[1] * grid.blocks[2];
  if (count == 1 || thread_count() == 1) return work();
  static Pool* const pool = new Pool(thread_count() - 1);
  pool->run(work);
}

}  // namespace kvcal::ptx
