#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ranks/communicator.h"
#include "ranks/lifeline.h"
#include "ranks/mpi_runtime.h"

namespace kvcal {

struct RankOptions {
  /// A rank that has not answered for so long is lost.
  std::chrono::duration<double> timeout = std::chrono::seconds(1800);
  /// Tells the user why the run failed. Called once over all ranks, on the rank that knows, perhaps
  /// by another thread.
  std::function<void(const std::string& message)> say;
};

/// This process as one of those that a launcher started, or alone: from before the first collective
/// step to the end of the program. Exactly one of done, failed and interrupted ends it.
class RankSession {
 public:
  static constexpr int kFailedStatus = 1, kInterruptedStatus = 130;

  /// Starts MPI where a launcher started this process, nothing where none did. Collective. Throws
  /// Error where it cannot be started, or where there are other ranks than the launcher says.
  explicit RankSession(RankOptions options);
  ~RankSession();
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

  Communicator& ranks() { return *ranks_; }
  /// Rank 0, which writes and tells.
  bool is_first() const { return ranks_->rank() == 0; }
  bool is_alone() const { return ranks_->size() == 1; }
  void set_stage(std::string stage) { watch_.set_stage(std::move(stage)); }

  /// All ranks have done what there was to do. Collective.
  void done();
  /// The run has thrown error, and what it held is released. What all ranks have thrown
  /// (SharedError) is said by rank 0; what this one alone has, with its name. The process's exit
  /// status; may end the processes of all ranks instead of returning.
  int failed(const Error& error);
  /// The same of Interrupted: kInterruptedStatus, or kFailedStatus where a rank is gone, which has
  /// been said then.
  int interrupted();

 private:
  void say_once(const std::string& message);
  void on_died(int rank);
  void on_failed(const std::string& message);
  void on_ended();
  /// The run ends on all ranks; this one's own threads have some time to release what they hold.
  void end_all(const std::string& message);
  [[noreturn]] void abort_failed();
  void wait_for_end(std::chrono::milliseconds time) const;
  /// Until what other ranks and the system have sent by now is known.
  void wait_for_news() const;
  void finish();

  RankOptions options_;
  Watch watch_;
  std::unique_ptr<MpiRuntime> mpi_;  ///< null: alone
  std::unique_ptr<Communicator> ranks_;
  std::mutex mutex_;
  bool has_said_ = false;
  std::atomic<bool> is_ending_ = false;    ///< why is said, or will be by another rank
  std::atomic<bool> has_lost_ = false;     ///< a rank died; who says so may take turns
  std::atomic<bool> is_released_ = false;  ///< the run's own thread has unwound
  bool is_over_ = false;
  std::unique_ptr<Lifeline> lifeline_;  ///< null: alone. Last: its thread uses all the rest
};

}  // namespace kvcal
