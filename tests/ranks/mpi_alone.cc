#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <csignal>
#include <fstream>
#include <string>

// Ranks without lib/ranks, to see what MPI does alone: rank 1 dies, the others call MPI_Allreduce.
//   mpi_alone FOLDER    each of the others makes FOLDER/waits.RANK before the call,
//   FOLDER/ends.RANK behind it
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, own = 1, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) std::raise(SIGKILL);
  const std::string name = "." + std::to_string(rank);
  std::ofstream(argv[1] + ("/waits" + name));
  MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::ofstream(argv[1] + ("/ends" + name));
  MPI_Finalize();
}
