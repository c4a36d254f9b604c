#pragma once

#include <functional>
#include <optional>
#include <string>

namespace kvcal {

/// Launcher that started this process as one of several.
struct Launch {
  std::string by;  ///< "mpirun", "srun (PMIx)", …
  int ranks = 0;   ///< 0: unknown
};

/// Finds the launcher from the environment: read gives a variable's value, null where it is not
/// set. nullopt for a process started alone, also inside a Slurm allocation or batch script, which
/// is no launcher.
std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& read);

}  // namespace kvcal
