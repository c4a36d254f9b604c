#pragma once

#include <filesystem>
#include <vector>

namespace kvcal {

/// What a process may go on doing.
struct Confinement {
  /// Files and folders that it may write, make and remove, with all below them; absent ones are
  /// ignored.
  std::vector<std::filesystem::path> writable;
  bool may_connect = false;  ///< opens and accepts TCP connections
};

/// What the system has taken from the process.
struct Confined {
  bool writing = false;     ///< it cannot write elsewhere
  bool connecting = false;  ///< it can neither connect nor listen by TCP
};

/// Takes all else from this thread and from the threads and processes that it starts later, for
/// good. It needs Landlock: Linux 5.13 for files, 6.7 for connections. An older kernel takes
/// nothing, and nothing is an error: this is a second wall behind the checks of every output.
Confined confine(const Confinement& allowed);

}  // namespace kvcal
