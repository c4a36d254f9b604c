#include "core/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "core/error.h"
#include "core/process.h"

namespace kvcal {
namespace {

constexpr uint32_t kOpen = uint32_t{1} << 31;
/// Longer than the work between two operations of a small model, and about the time to wake a
/// sleeping thread, which bounds the waste of a vain wait.
constexpr auto kSpin = std::chrono::microseconds(60);

/// Tells the CPU that this is a spin loop.
void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void pin(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A system may refuse; then the thread is not pinned, which is no error.
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, std::function<void()> on_start)
    : on_start_(std::move(on_start)) {
  if (num_threads <= 0)
    num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (on_start_) on_start_();
  try {
    start(num_threads);
  } catch (const std::system_error& error) {
    const size_t started = workers_.size();
    stop();
    fail("cannot start thread ", started + 2, " of ", num_threads, ": ", error.what());
  }
}

void ThreadPool::start(int num_threads) {
  const std::vector<int> cpus = allowed_cpus();
  const auto threads = static_cast<size_t>(num_threads);
  spins_ = threads <= cpus.size();
  workers_.reserve(threads - 1);
  parts_ = std::vector<Part>(threads);
  for (int thread = 1; thread < num_threads; ++thread)
    workers_.emplace_back([this, thread] { work(thread); });
  // With fewer threads than CPUs, other processes that pin would share the first CPUs. The caller's
  // thread is not pinned, because threads that it starts later would inherit its CPU.
  if (threads > 1 && threads == cpus.size())
    for (size_t i = 0; i < workers_.size(); ++i) pin(workers_[i], cpus[i + 1]);
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stopping_ = true;
  ++generation_;
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

template <class IsDone>
void ThreadPool::spin_until(const IsDone& is_done) const {
  if (!spins_) return;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (is_done()) return;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
}

void ThreadPool::parallel_for(int64_t count, const std::function<void(int64_t, int)>& body) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  body_ = &body;
  error_ = nullptr;
  has_failed_.store(false, std::memory_order_relaxed);
  const auto threads = static_cast<int64_t>(parts_.size());
  for (int64_t i = 0; i < threads; ++i) {
    Part& part = parts_[static_cast<size_t>(i)];
    part.next.store(count / threads * i + std::min(i, count % threads), std::memory_order_relaxed);
    part.end = count / threads * (i + 1) + std::min(i + 1, count % threads);
  }
  gate_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  wake(count - 1);
  run_indices(0);
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto is_empty = [this] { return gate_.load(std::memory_order_acquire) == 0; };
  spin_until(is_empty);
  while (!is_empty()) {
    const uint32_t inside = gate_.load(std::memory_order_acquire);
    if (inside != 0) gate_.wait(inside, std::memory_order_acquire);
  }
  body_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

/// Wakes as many workers as there are indices for; each wake-up costs the caller time.
void ThreadPool::wake(int64_t count) {
  if (count >= static_cast<int64_t>(workers_.size())) return generation_.notify_all();
  for (int64_t i = 0; i < count; ++i) generation_.notify_one();
}

void ThreadPool::work(int thread) {
  if (on_start_) on_start_();
  uint32_t seen = 0;
  while (true) {
    spin_until([&] { return generation_.load(std::memory_order_acquire) != seen; });
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_) return;
    if (!enter()) continue;
    run_indices(thread);
    leave();
  }
}

bool ThreadPool::enter() {
  uint32_t inside = gate_.load(std::memory_order_relaxed);
  while (inside & kOpen)
    if (gate_.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire,
                                    std::memory_order_relaxed))
      return true;
  return false;
}

void ThreadPool::leave() {
  // The last worker to leave a closed loop wakes the caller.
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();
}

void ThreadPool::run_indices(int thread) {
  const size_t first = static_cast<size_t>(thread);
  for (size_t i = 0; i < parts_.size(); ++i) run_part(parts_[(first + i) % parts_.size()], thread);
}

void ThreadPool::run_part(Part& part, int thread) {
  while (part.next.load(std::memory_order_relaxed) < part.end) {
    const int64_t index = part.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= part.end || has_failed_.load(std::memory_order_relaxed)) return;
    try {
      (*body_)(index, thread);
    } catch (...) {
      if (!has_failed_.exchange(true)) error_ = std::current_exception();
    }
  }
}

}  // namespace kvcal
