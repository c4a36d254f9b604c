#include "ranks/communicator.h"

#include <atomic>
#include <functional>

#include "core/interrupt.h"
#include "ranks/support/communicator_checks.h"
#include "ranks/support/thread_ranks.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::run_ranks;

TEST_CASE("what ranks give arrives at all, of any size, in the order of the ranks") {
  for (const int count : {1, 2, 3, 8}) {
    std::atomic<int> done = 0;
    run_ranks(count, [&](Communicator& ranks) {
      test::check_communicator(ranks);
      ++done;
    });
    CHECK(done == count);
  }
}

TEST_CASE("a process alone exchanges with nobody") {
  Watch watch;
  SingleCommunicator alone("here", watch);
  test::check_communicator(alone);
  CHECK(alone.name_of(0) == "rank 0 on host here");
  CHECK(alone.split(false) == nullptr);
}

TEST_CASE("ranks know their machines") {
  Watch watch;
  std::vector<int> local(5);
  const auto errors = run_ranks({"a", "b", "a", "b", "a"}, watch, [&](Communicator& ranks) {
    local[static_cast<size_t>(ranks.rank())] = ranks.local_rank();
    if (ranks.num_hosts() != 2) fail("hosts");
  });
  for (const auto& error : errors) CHECK(test::message_of(error) == "");
  CHECK(local == std::vector<int>{0, 0, 1, 1, 2});
}

namespace {

/// A clock that only a test moves.
struct SetClock {
  std::atomic<int64_t> seconds = 0;
  std::function<Watch::Clock::time_point()> now() {
    return [this] { return Watch::Clock::time_point(std::chrono::seconds(seconds)); };
  }
};

}  // namespace

TEST_CASE("a rank that does not answer ends the wait of all others with its name") {
  SetClock clock;
  Watch watch(std::chrono::seconds(100), clock.now());
  watch.set_stage("layer 7");
  std::atomic<unsigned> waiting = 0;  // bits of the ranks that wait for rank 2 alone
  const auto errors = run_ranks(
      {"n1", "n1", "n2"}, watch,
      [&](Communicator& ranks) {
        if (ranks.rank() == 2) return;
        ranks.barrier();
      },
      [&](int rank, std::span<const int> missing) {
        if (missing.size() == 1 && missing[0] == 2) waiting |= 1u << rank;
        if (waiting == 3) clock.seconds = 100;
      });
  CHECK(test::message_of(errors[0]) == "rank 2 on host n2 has not answered for 100 s in layer 7");
  CHECK(test::message_of(errors[1]) == test::message_of(errors[0]));
  CHECK(!errors[2]);
  CHECK_THROWS_AS(std::rethrow_exception(errors[0]), LostRank);
}

TEST_CASE("of several that do not answer the first is named and the others counted") {
  SetClock clock;
  Watch watch(std::chrono::seconds(100), clock.now());
  const auto errors = run_ranks(
      {"n1", "n2", "n3", "n4"}, watch,
      [&](Communicator& ranks) {
        if (ranks.rank() == 1) ranks.barrier();
      },
      [&](int, std::span<const int>) { clock.seconds = 100; });
  CHECK(test::message_of(errors[1]) ==
        "rank 0 on host n1 has not answered for 100 s in the start, nor have 2 more");
}

TEST_CASE("an interrupt ends a wait") {
  SetClock clock;
  Watch watch(std::chrono::seconds(100), clock.now());
  const auto errors = run_ranks(
      {"n1", "n2"}, watch,
      [&](Communicator& ranks) {
        if (ranks.rank() == 0) ranks.barrier();
      },
      [&](int, std::span<const int>) {
        request_interrupt();
        ++clock.seconds;
      });
  clear_interrupt();
  CHECK_THROWS_AS(std::rethrow_exception(errors[0]), Interrupted);
}

TEST_CASE("what fails on one rank is thrown on all, with rank, host and stage") {
  Watch watch;
  watch.set_stage("layer 3");
  std::atomic<int> told = 0;
  const auto errors = run_ranks({"n1", "n1", "n2", "n2"}, watch, [&](Communicator& ranks) {
    agree(
        ranks,
        [&]() -> std::vector<std::byte> {
          if (ranks.rank() == 1) throw RankLeft();
          if (ranks.rank() >= 2) fail("disk ", ranks.rank(), " is gone");
          return {};
        },
        [&] { ++told; });
  });
  for (const auto& error : errors) {
    CHECK(test::message_of(error) == "rank 2 on host n2, layer 3: disk 2 is gone");
    CHECK_THROWS_AS(std::rethrow_exception(error), SharedError);
  }
  CHECK(told == 3);
}

TEST_CASE("memory that one rank lacks and an interrupt of one rank end all") {
  Watch watch;
  auto errors = run_ranks({"n1", "n2"}, watch, [&](Communicator& ranks) {
    agree(ranks, [&]() -> std::vector<std::byte> {
      if (ranks.rank() == 1) throw std::bad_alloc();
      return {};
    });
  });
  CHECK(test::message_of(errors[0]) == "rank 1 on host n2, the start: out of memory");
  errors = run_ranks({"n1", "n2"}, watch, [&](Communicator& ranks) {
    agree(ranks, [&]() -> std::vector<std::byte> {
      if (ranks.rank() == 0) fail("a disk");
      throw Interrupted();
    });
  });
  for (const auto& error : errors) CHECK_THROWS_AS(std::rethrow_exception(error), Interrupted);
}

TEST_CASE("a rank that sees something else than the first is named") {
  Watch watch;
  const auto errors = run_ranks({"n1", "n1", "n2"}, watch, [&](Communicator& ranks) {
    const char own = ranks.rank() == 2 ? 'b' : 'a';
    expect_same(ranks, std::as_bytes(std::span(&own, 1)), "another model");
  });
  for (const auto& error : errors)
    CHECK(test::message_of(error) == "rank 2 on host n2 sees another model than rank 0 on host n1");
}

namespace {

/// Shows what waits do.
class WaitingCommunicator : public SingleCommunicator {
 public:
  using Communicator::Wait;
  using SingleCommunicator::SingleCommunicator;
};

}  // namespace

TEST_CASE("who sends now and then is not silent, however long all of it takes") {
  SetClock clock;
  Watch watch(std::chrono::seconds(200), clock.now());
  WaitingCommunicator ranks("n1", watch);
  WaitingCommunicator::Wait wait(ranks);
  const std::vector<int> missing{0};
  for (int i = 1; i <= 10; ++i) {
    wait.heard(0);
    clock.seconds += 50;
    wait.pause(missing);
  }
  CHECK(clock.seconds == 500);
  clock.seconds += 149;
  wait.pause(missing);
  clock.seconds += 1;
  CHECK_THROWS_AS(wait.pause(missing), LostRank);
}
