#include "call.h"

#include <chrono>

#include "core/file_in_use.h"

namespace kvcal {
namespace {

/// The longest time until a signal is seen.
constexpr std::chrono::milliseconds kMoment{50};

}  // namespace

Call::Call(std::function<void(Diagnostics&)> work)
    : thread_([this, work = std::move(work)] {
        try {
          unless_file_changed([&] { work(*this); });
        } catch (...) {
          error_ = std::current_exception();
        }
        const std::lock_guard lock(mutex_);
        has_ended_ = true;
        for_caller_.notify_all();
      }) {}

Call::~Call() {
  thread_.join();
}

const CallEvent* Call::wait() {
  std::unique_lock lock(mutex_);
  for_caller_.wait_for(lock, kMoment, [&] { return event_ || has_ended_; });
  return event_;
}

void Call::handled() {
  const std::lock_guard lock(mutex_);
  event_ = nullptr;
  for_work_.notify_all();
}

bool Call::has_ended() {
  const std::lock_guard lock(mutex_);
  return has_ended_;
}

void Call::rethrow() const {
  if (error_) std::rethrow_exception(error_);
}

void Call::progress(std::string_view stage, int64_t done, int64_t total, std::string_view unit) {
  tell({.kind = "progress",
        .text = std::string(stage),
        .done = done,
        .total = total,
        .unit = std::string(unit)});
}

void Call::tell(CallEvent event) {
  const std::lock_guard one(one_at_a_time_);
  std::unique_lock lock(mutex_);
  event_ = &event;
  for_caller_.notify_all();
  for_work_.wait(lock, [&] { return !event_; });
}

}  // namespace kvcal
