#include "core/process.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "support/catch.h"

using namespace kvcal;

namespace {

constexpr int kLevels = 4000;  // 4 MB

/// Needs about 1 kB of stack for each level.
int depth_of(int level) {
  volatile char room[1024];
  room[level % 1024] = 1;
  return level == 0 ? 0 : depth_of(level - 1) + room[level % 1024];
}

/// Status of a process that goes deep on its own stack and on that of a thread, below these limits.
int status_below(rlim_t soft, rlim_t hard) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{soft, hard};
    if (setrlimit(RLIMIT_STACK, &limit) != 0) _exit(1);
    int own = 0, later = 0;
    const int result = run_on_own_stack([&] {
      own = depth_of(kLevels);
      std::thread([&] { later = depth_of(kLevels); }).join();
      return 7;
    });
    _exit(own == kLevels && later == kLevels ? result : 2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("what runs on its own stack does not depend on the limit of the process") {
  constexpr rlim_t kSmall = 64 << 10;
  rlimit now{};
  REQUIRE(getrlimit(RLIMIT_STACK, &now) == 0);
  CHECK(status_below(kSmall, now.rlim_max) == 7);
  CHECK(status_below(kSmall, kSmall) == 7);
  CHECK(status_below(now.rlim_max, now.rlim_max) == 7);
}
