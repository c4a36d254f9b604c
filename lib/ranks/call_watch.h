#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "ranks/communicator.h"

namespace kvcal {

/// Notices a call of MPI that does not return: MPI_Init waits for ranks that never come, and any
/// call may wait inside for a byte of a connection. Such a call cannot be ended, only its process.
class CallWatch {
 public:
  /// on_stuck is called once, in a thread of the watch, for a call that lasts as long as the
  /// watch's timeout. Time in which the whole process was stopped does not count.
  CallWatch(const Watch& watch, std::function<void()> on_stuck);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// A call, of which there is one at a time.
  class Call {
   public:
    explicit Call(CallWatch& watch) : watch_(watch) { ++watch_.steps_; }
    ~Call() { ++watch_.steps_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    CallWatch& watch_;
  };

 private:
  void run();

  const Watch& watch_;
  std::function<void()> on_stuck_;
  std::atomic<uint64_t> steps_ = 0;  ///< into and out of calls; odd: in one
  std::mutex mutex_;
  std::condition_variable closed_;
  bool is_closed_ = false;
  std::thread thread_;
};

}  // namespace kvcal
