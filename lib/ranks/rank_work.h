#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ranks/communicator.h"

namespace kvcal {

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
