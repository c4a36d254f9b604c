#include "ranks/call_watch.h"

#include <algorithm>
#include <utility>

namespace kvcal {
namespace {

using Seconds = std::chrono::duration<double>;

/// How often the thread looks: often enough that the timeout is met within an eighth.
Seconds pause_of(Seconds timeout) {
  return std::clamp(timeout / 8, Seconds(0.001), Seconds(1.0));
}

}  // namespace

CallWatch::CallWatch(const Watch& watch, std::function<void()> on_stuck)
    : watch_(watch), on_stuck_(std::move(on_stuck)), thread_([this] { run(); }) {}

CallWatch::~CallWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  closed_.notify_one();
  thread_.join();
}

void CallWatch::run() {
  uint64_t seen = 0;
  Seconds lasted{0};  // of pauses in which the call seen did not end
  std::unique_lock lock(mutex_);
  while (true) {
    const Seconds timeout = watch_.timeout(), pause = pause_of(timeout);
    if (closed_.wait_for(lock, pause, [&] { return is_closed_; })) return;
    const uint64_t now = steps_;
    lasted = now % 2 == 1 && now == seen ? lasted + pause : Seconds(0);
    seen = now;
    if (lasted < timeout) continue;
    lock.unlock();
    return on_stuck_();
  }
}

}  // namespace kvcal
