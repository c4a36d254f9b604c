#pragma once

#include <memory>

#include "ranks/call_watch.h"
#include "ranks/communicator.h"

namespace kvcal {

/// MPI from its start to its end. Only mpi_runtime.cc uses MPI's names. Its calls come one at a
/// time, so any MPI with serialized thread support suffices. None waits for long but those that
/// start, split and end; the watch of calls knows where one does.
class MpiRuntime {
 public:
  /// Borrows calls. Throws Error where the program was built without MPI.
  explicit MpiRuntime(CallWatch& calls);
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  static bool is_built_in();
  /// Communicator of all ranks. Borrows this and watch.
  std::unique_ptr<Communicator> world(Watch& watch);
  /// Whether a wait was abandoned, so that ranks are out of step.
  bool is_broken() const;
  /// Ends MPI; all ranks call it, unless is_broken.
  void finalize();
  /// Ends the processes of all ranks.
  [[noreturn]] void abort(int code);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kvcal
