#include "ranks/rank_work.h"

#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <type_traits>

#include "core/process_memory.h"

namespace kvcal {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Bytes read from storage for mapped files and preads, with read-ahead, without pages already in
/// memory.
uint64_t fetched_bytes() {
  std::ifstream io("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (io >> key >> value)
    if (key == "read_bytes:") return value;
  return 0;
}

}  // namespace

RankWork process_work() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return {.storage_bytes = fetched_bytes(),
          .processor_seconds = seconds(used.ru_utime) + seconds(used.ru_stime),
          .peak_bytes = peak_resident_bytes()};
}

std::vector<RankWork> gather_work(Communicator& ranks, const RankWork& own) {
  // Ranks of one run have the same program (their fingerprints are compared), so raw bytes suffice.
  static_assert(std::is_trivially_copyable_v<RankWork>);
  const auto told = ranks.all_gather(std::as_bytes(std::span(&own, 1)));
  std::vector<RankWork> all(told.size());
  for (size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].size() != sizeof(RankWork))
      fail(ranks.name_of(static_cast<int>(rank)), " tells its work in ", told[rank].size(),
           " bytes, expected ", sizeof(RankWork));
    std::memcpy(&all[rank], told[rank].data(), sizeof(RankWork));
  }
  return all;
}

}  // namespace kvcal
