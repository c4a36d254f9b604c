#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ranks/call_watch.h"
#include "ranks/communicator.h"
#include "ranks/lifeline.h"
#include "ranks/mpi_runtime.h"

namespace kvcal {

/// Launcher that started this process as one of several.
struct Launch {
  std::string by;  ///< "mpirun", "srun (PMIx)", …
  int ranks = 0;   ///< 0: unknown
  int rank = 0;    ///< of this process, as the launcher counts
};

/// Finds the launcher from the environment: read gives a variable's value, null where it is not
/// set. nullopt for a process started alone, also inside a Slurm allocation or batch script, which
/// is no launcher.
std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& read);

struct RankOptions {
  /// A rank without an answer for this long is lost.
  std::chrono::duration<double> timeout = std::chrono::seconds(1800);
  /// Reports to the user why the run failed. Called once over all ranks, on the rank that knows,
  /// perhaps in another thread.
  std::function<void(const std::string& message)> say = {};
  bool ignores_launcher = false;  ///< runs alone, also where a launcher started the process
};

/// This process as one of several that a launcher started, or alone: from before the first
/// collective step to the end of the program. Exactly one of done, failed and interrupted ends it.
class RankSession {
 public:
  static constexpr int kFailedStatus = 1, kInterruptedStatus = 130;

  /// Starts MPI where a launcher started this process. Collective. Throws Error where MPI cannot be
  /// started, or where the number of ranks differs from the launcher's.
  explicit RankSession(RankOptions options);
  ~RankSession();
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

  Communicator& ranks() { return *ranks_; }
  /// Whether this is rank 0, which writes and reports.
  bool is_first() const { return ranks_->rank() == 0; }
  bool is_alone() const { return ranks_->size() == 1; }
  void set_stage(std::string stage) { watch_.set_stage(std::move(stage)); }

  /// Ends a session in which all ranks have finished their work. Collective.
  void done();
  /// Ends a session whose run has thrown error and released its resources. Rank 0 reports an error
  /// of all ranks (SharedError); a rank with an error of its own reports it with its name. Returns
  /// the process's exit status; may end the processes of all ranks instead.
  int failed(const Error& error);
  /// failed for Interrupted: returns kInterruptedStatus, or kFailedStatus where a rank is gone,
  /// which is then reported.
  int interrupted();

 private:
  void say_once(const std::string& message);
  void on_died(int rank);
  void on_failed(const std::string& message);
  void on_ended();
  /// A call of MPI does not return. rank: of this process.
  void on_stuck(int rank);
  /// Ends the run on all ranks; this rank's threads get some time to release their resources.
  void end_all(const std::string& message);
  [[noreturn]] void abort_failed();
  void wait_for_end(std::chrono::milliseconds time) const;
  /// Waits until everything that other ranks and the system have sent is known.
  void wait_for_news() const;
  void finish();

  RankOptions options_;
  Watch watch_;
  std::unique_ptr<CallWatch> calls_;  ///< null: single process
  std::unique_ptr<MpiRuntime> mpi_;   ///< null: single process
  std::unique_ptr<Communicator> ranks_;
  std::mutex mutex_;
  bool has_said_ = false;
  std::atomic<bool> is_ending_ = false;  ///< the reason is reported, or another rank will report it
  std::atomic<bool> has_lost_ = false;   ///< a rank died; ranks may compete to report it
  std::atomic<bool> is_released_ = false;  ///< the run's own thread has unwound
  std::atomic<bool> is_started_ = false;   ///< mpi_ is there
  bool is_over_ = false;
  std::unique_ptr<Lifeline> lifeline_;  ///< null: single process; last, its thread uses all others
};

/// Work of one rank and its cost.
struct RankWork {
  int64_t samples = 0, tokens = 0;
  double flop = 0.0;           ///< of one forward pass over its samples, by SampleWork
  uint64_t bytes_read = 0;     ///< of layers, as RankLayerBytes counts them
  uint64_t storage_bytes = 0;  ///< fetched from storage for the process, all files
  double processor_seconds = 0.0;
  uint64_t peak_bytes = 0;  ///< peak memory of the process
};

/// Cost of this process so far: processor seconds, fetched bytes and peak memory; 0 where the
/// system does not tell.
RankWork process_work();

/// Work of all ranks, by rank. Collective.
std::vector<RankWork> gather_work(Communicator& ranks, const RankWork& own);

}  // namespace kvcal
