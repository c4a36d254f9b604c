#include "ranks/launcher.h"

#include <charconv>
#include <string_view>

namespace kvcal {
namespace {

/// Environment variables of a process manager: rank is set in its processes, size is their number.
struct Manager {
  const char* name;
  const char* rank;
  const char* size;  ///< null: told elsewhere
};

constexpr Manager kManagers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpiexec (PMI)", "PMI_RANK", "PMI_SIZE"},
    // Slurm sets its own size for every process of a job, and PMIX_RANK where srun started it.
    {"srun (PMIx)", "PMIX_RANK", "SLURM_NTASKS"},
};

int number_of(const char* text) {
  int number = 0;
  if (text) {
    const std::string_view all(text);
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
    if (error != std::errc() || end != all.data() + all.size()) return 0;
  }
  return number;
}

}  // namespace

std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& read) {
  for (const Manager& manager : kManagers)
    if (read(manager.rank)) {
      // srun's steps may have fewer tasks than the job.
      const char* step = read("SLURM_STEP_NUM_TASKS");
      const bool is_step = std::string_view(manager.rank) == "PMIX_RANK" && step;
      return Launch{.by = manager.name, .ranks = number_of(is_step ? step : read(manager.size))};
    }
  return std::nullopt;
}

}  // namespace kvcal
