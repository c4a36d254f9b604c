#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace kvcal {

/// Runs tasks one after the other, beside the forward pass. A failure cancels all later tasks.
class StateThread {
 public:
  StateThread();
  /// Runs the remaining tasks first.
  ~StateThread();
  StateThread(const StateThread&) = delete;
  StateThread& operator=(const StateThread&) = delete;

  void add(std::function<void()> task);
  bool is_idle() const;
  void wait_until_idle();
  /// Waits for at most so many seconds; returns whether it is idle.
  bool wait_until_idle(double seconds);
  /// Message of the failure, after which no task runs.
  std::optional<std::string> failure() const;
  /// CPU seconds of the thread so far.
  double cpu_seconds() const;

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_running_ = false, stops_ = false;
  std::optional<std::string> failure_;
  double cpu_seconds_ = 0.0;
  std::thread thread_;
};

}  // namespace kvcal
