#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "core/error.h"

namespace kvcal {

/// Another rank is gone or does not answer: nothing more can be done together.
class LostRank : public Error {
 public:
  using Error::Error;
};

/// The stage of the run for messages, and how long ranks wait for each other. Safe to use from
/// several threads.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  /// now tells the time that ranks wait for each other.
  explicit Watch(std::chrono::duration<double> timeout = std::chrono::seconds(1800),
                 std::function<Clock::time_point()> now = Clock::now)
      : now_(std::move(now)), timeout_(timeout) {}
  Clock::time_point now() const { return now_(); }

  /// As messages call it: "layer 7".
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
