#include "state/state_thread.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <utility>

namespace kvcal {
namespace {

double own_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

StateThread::StateThread() : thread_([this] { work(); }) {}

StateThread::~StateThread() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StateThread::add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

bool StateThread::is_idle() const {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !is_running_;
}

void StateThread::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() && !is_running_; });
}

bool StateThread::wait_until_idle(double seconds) {
  // Limited to any useful wait, and to the clock's range.
  const std::chrono::duration<double> most(std::clamp(seconds, 0.0, 86400.0));
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [&] { return tasks_.empty() && !is_running_; });
}

std::optional<std::string> StateThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

double StateThread::cpu_seconds() const {
  const std::lock_guard lock(mutex_);
  return cpu_seconds_;
}

void StateThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    is_running_ = true;
    lock.unlock();
    std::optional<std::string> failure;
    try {
      task();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    task = nullptr;  // what it owns goes before anybody learns that it is done
    lock.lock();
    is_running_ = false;
    cpu_seconds_ = own_cpu_seconds();
    if (failure) {
      failure_ = std::move(failure);
      tasks_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace kvcal
