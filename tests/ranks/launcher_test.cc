#include "ranks/rank_session.h"

#include <map>

#include "support/catch.h"

using namespace kvcal;

namespace {

std::optional<Launch> launch_of(const std::map<std::string, std::string>& environment) {
  return find_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("a process started alone has no launcher, in an allocation or a batch script neither") {
  CHECK(!launch_of({}));
  // What Slurm sets for a batch script and for a shell of salloc.
  CHECK(!launch_of({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
  CHECK(!launch_of({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}}));
}

TEST_CASE("launchers are known by what they set") {
  const auto open_mpi = launch_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  REQUIRE(open_mpi);
  CHECK(open_mpi->by == "mpirun");
  CHECK(open_mpi->ranks == 4);
  CHECK(open_mpi->rank == 1);
  const auto hydra = launch_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  REQUIRE(hydra);
  CHECK(hydra->ranks == 2);
  const auto slurm =
      launch_of({{"PMIX_RANK", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  REQUIRE(slurm);
  CHECK(slurm->by == "srun (PMIx)");
  CHECK(slurm->ranks == 2);
  CHECK(launch_of({{"PMIX_RANK", "0"}})->ranks == 0);
  CHECK(launch_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "many"}})->ranks == 0);
}
