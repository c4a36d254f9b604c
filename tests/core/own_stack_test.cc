#include "core/own_stack.h"

#include <sys/resource.h>

#include <thread>

#include "support/catch.h"

using namespace kvcal;

namespace {

/// Needs about 1 kB of stack for each level.
int depth_of(int level) {
  volatile char room[1024];
  room[level % 1024] = 1;
  return level == 0 ? 0 : depth_of(level - 1) + room[level % 1024];
}

}  // namespace

TEST_CASE("what runs on its own stack does not depend on the limit of the process") {
  constexpr int kLevels = 4000;  // 4 MB
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_STACK, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  REQUIRE(setrlimit(RLIMIT_STACK, &small) == 0);
  int own = 0, later = 0;
  const int result = run_on_own_stack([&] {
    own = depth_of(kLevels);
    std::thread([&] { later = depth_of(kLevels); }).join();
    return 7;
  });
  REQUIRE(setrlimit(RLIMIT_STACK, &before) == 0);
  CHECK(result == 7);
  CHECK(own == kLevels);
  CHECK(later == kLevels);
}
