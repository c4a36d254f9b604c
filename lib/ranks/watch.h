#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "core/error.h"

namespace kvcal {

/// Another rank died or does not answer, so no collective step is possible.
class LostRank : public Error {
 public:
  using Error::Error;
};

/// Stage of the run for messages, and the timeout of waits for other ranks. Thread-safe.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  /// now: clock for waits.
  explicit Watch(std::chrono::duration<double> timeout = std::chrono::seconds(1800),
                 std::function<Clock::time_point()> now = Clock::now)
      : now_(std::move(now)), timeout_(timeout) {}
  Clock::time_point now() const { return now_(); }

  /// Sets the name of the stage in messages: "layer 7".
  void set_stage(std::string stage) {
    const std::lock_guard lock(mutex_);
    stage_ = std::move(stage);
  }
  std::string stage() const {
    const std::lock_guard lock(mutex_);
    return stage_;
  }
  std::chrono::duration<double> timeout() const {
    const std::lock_guard lock(mutex_);
    return timeout_;
  }
  void wait_forever() {
    const std::lock_guard lock(mutex_);
    timeout_ = std::chrono::duration<double>::max();
  }

 private:
  std::function<Clock::time_point()> now_;
  mutable std::mutex mutex_;
  std::string stage_ = "the start";
  std::chrono::duration<double> timeout_;
};

}  // namespace kvcal
