#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ranks/communicator.h"

namespace kvcal {

/// The work of one rank and its cost.
struct RankWork {
  int64_t samples = 0, tokens = 0;
  double flop = 0.0;           ///< of a forward pass over its samples, by SampleWork
  uint64_t bytes_read = 0;     ///< of layers, as RankLayerBytes counts them
  uint64_t storage_bytes = 0;  ///< what the process had the system fetch from storage, all files
  double processor_seconds = 0.0;
  uint64_t peak_bytes = 0;  ///< the most memory that the process held since it began
};

/// The cost of this process since it began: processor seconds, fetched bytes and peak memory. What
/// the system does not tell stays 0.
RankWork process_work();

/// The work of all ranks, by rank. Collective.
std::vector<RankWork> gather_work(Communicator& ranks, const RankWork& own);

}  // namespace kvcal
