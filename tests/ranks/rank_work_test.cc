#include "ranks/rank_session.h"

#include "core/process.h"
#include "ranks/support/thread_ranks.h"
#include "support/catch.h"

using namespace kvcal;

TEST_CASE("what each rank had to do is known to all, by rank") {
  std::vector<std::vector<RankWork>> seen(3);
  test::run_ranks(3, [&](Communicator& ranks) {
    const auto rank = static_cast<uint64_t>(ranks.rank());
    seen[rank] = gather_work(ranks, {.samples = static_cast<int64_t>(rank) + 1,
                                     .tokens = 100 * static_cast<int64_t>(rank),
                                     .flop = 0.5 * static_cast<double>(rank),
                                     .bytes_read = rank << 40,
                                     .storage_bytes = rank << 41,
                                     .processor_seconds = 0.25 * static_cast<double>(rank),
                                     .peak_bytes = rank << 42});
  });
  for (const std::vector<RankWork>& all : seen) {
    REQUIRE(all.size() == 3);
    for (uint64_t rank = 0; rank < 3; ++rank) {
      CHECK(all[rank].samples == static_cast<int64_t>(rank) + 1);
      CHECK(all[rank].tokens == 100 * static_cast<int64_t>(rank));
      CHECK(all[rank].flop == 0.5 * static_cast<double>(rank));
      CHECK(all[rank].bytes_read == rank << 40);
      CHECK(all[rank].storage_bytes == rank << 41);
      CHECK(all[rank].processor_seconds == 0.25 * static_cast<double>(rank));
      CHECK(all[rank].peak_bytes == rank << 42);
    }
  }
}

TEST_CASE("a process knows what it has taken, and work costs processor seconds") {
  const RankWork before = process_work();
  CHECK(before.peak_bytes > 0);
  CHECK(before.peak_bytes <= peak_resident_bytes());
  volatile double sum = 0.0;
  RankWork now = before;
  for (int i = 0; i < 1000 && now.processor_seconds < before.processor_seconds + 0.02; ++i) {
    for (int k = 0; k < 1'000'000; ++k) sum = sum + 1.0;
    now = process_work();
  }
  CHECK(now.processor_seconds >= before.processor_seconds + 0.02);
  CHECK(now.storage_bytes >= before.storage_bytes);
}
