#pragma once

#include <functional>
#include <optional>
#include <string>

namespace kvcal {

/// The launcher that started this process as one of several.
struct Launch {
  std::string by;  ///< "mpirun", "srun (PMIx)", …
  int ranks = 0;   ///< 0: it does not say
};

/// From the environment: read gives a variable's value, null where it is not set. Nothing where the
/// process was started alone, also inside an allocation or a batch script of Slurm, which is no
/// launcher.
std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& read);

}  // namespace kvcal
