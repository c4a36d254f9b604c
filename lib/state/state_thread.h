#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace kvcal {

/// Does what it is given, one thing after the other, beside the forward pass. What fails stops all
/// that comes behind it.
class StateThread {
 public:
  StateThread();
  /// Does what is left first.
  ~StateThread();
  StateThread(const StateThread&) = delete;
  StateThread& operator=(const StateThread&) = delete;

  void add(std::function<void()> task);
  bool is_idle() const;
  void wait_until_idle();
  /// Waits for so many seconds at most; whether it is idle then.
  bool wait_until_idle(double seconds);
  /// The message of the failure; nothing is done after it.
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
