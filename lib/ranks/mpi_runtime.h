#pragma once

#include <memory>

#include "ranks/communicator.h"

namespace kvcal {

/// MPI, from its start to its end. No file but mpi_runtime.cc knows its names. Its calls come one
/// at a time and none of them waits, so any MPI that may be called by several threads in turn will
/// do.
class MpiRuntime {
 public:
  /// Throws Error where the program was built without MPI.
  MpiRuntime();
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  static bool is_built_in();
  /// All ranks. Borrows this and watch.
  std::unique_ptr<Communicator> world(Watch& watch);
  /// Whether a wait was given up, so that ranks no longer know where the others are.
  bool is_broken() const;
  /// At the end, of all ranks; not where is_broken.
  void finalize();
  /// Ends the processes of all ranks.
  [[noreturn]] void abort(int code);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace kvcal
