#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/diagnostics.h"

namespace kvcal {

/// Something that a running call tells its caller.
struct CallEvent {
  std::string_view kind;  ///< "warning", "note" or "progress"
  std::string text;       ///< of progress: the stage
  int64_t done = 0, total = 0;
  std::string unit = {};
};

/// Work in a thread of its own, whose events the caller's thread handles: only that thread may run
/// Python, and it stays free for signals.
class Call : public Diagnostics {
 public:
  explicit Call(std::function<void(Diagnostics&)> work);
  /// Waits for the work's end.
  ~Call() override;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Waits a moment, or for the next event or the end. Returns the event, which holds the work
  /// until handled() is called, or null.
  const CallEvent* wait();
  void handled();
  bool has_ended();
  /// Throws what the work threw. After its end.
  void rethrow() const;

  void warn(const std::string& message) override { tell({.kind = "warning", .text = message}); }
  void inform(const std::string& lines) override { tell({.kind = "note", .text = lines}); }
  void progress(std::string_view stage, int64_t done, int64_t total,
                std::string_view unit) override;

 private:
  void tell(CallEvent event);

  std::mutex one_at_a_time_;  ///< of threads that tell
  std::mutex mutex_;
  std::condition_variable for_caller_, for_work_;
  const CallEvent* event_ = nullptr;
  bool has_ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;  ///< last: it uses all others
};

}  // namespace kvcal
