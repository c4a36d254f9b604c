#include "core/process.h"

#include <fstream>
#include <numeric>
#include <vector>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// A system that says what the test wants.
class FakeSystem {
 public:
  void write(const fs::path& path, const std::string& content) const {
    fs::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << content;
  }
  std::optional<uint64_t> available() const { return available_memory(folder_.path()); }

 private:
  test::ScratchFolder folder_;
};

}  // namespace

TEST_CASE("available_memory: nothing is known of a system that tells nothing") {
  CHECK_FALSE(FakeSystem().available());
}

TEST_CASE("available_memory: the machine's, less what a group of version 2 does not give") {
  FakeSystem system;
  system.write("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    2048 kB\n");
  CHECK(system.available() == 2 * kMiB);
  system.write("proc/self/cgroup", "0::/jobs/mine\n");
  CHECK(system.available() == 2 * kMiB);
  system.write("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  system.write("sys/fs/cgroup/jobs/mine/memory.current", "500\n");
  CHECK(system.available() == 2 * kMiB);
  system.write("sys/fs/cgroup/jobs/mine/memory.max", "1000000\n");
  CHECK(system.available() == 999'500);
  // Pages of files are given back when memory is short.
  system.write("sys/fs/cgroup/jobs/mine/memory.current", "900000\n");
  system.write("sys/fs/cgroup/jobs/mine/memory.stat",
               "anon 1\nactive_file 7\ninactive_file 300000\n");
  CHECK(system.available() == 400'000);
  // A parent's limit holds, too.
  system.write("sys/fs/cgroup/jobs/memory.max", "2000000\n");
  system.write("sys/fs/cgroup/jobs/memory.current", "1900000\n");
  CHECK(system.available() == 100'000);
  system.write("sys/fs/cgroup/jobs/memory.current", "2100000\n");
  CHECK(system.available() == 0);
}

TEST_CASE("available_memory: a container sees its own group as the root") {
  FakeSystem system;
  system.write("proc/self/cgroup", "0::/\n");
  system.write("sys/fs/cgroup/memory.max", "3000\n");
  system.write("sys/fs/cgroup/memory.current", "1000\n");
  CHECK(system.available() == 2000);
  system.write("proc/self/cgroup", "0::/host/path/that/is/not/mounted\n");
  CHECK(system.available() == 2000);
}

TEST_CASE("available_memory: groups of version 1") {
  FakeSystem system;
  system.write("proc/meminfo", "MemAvailable: 4096 kB\n");
  system.write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n");
  system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  system.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  CHECK(system.available() == 4 * kMiB);
  system.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n");
  system.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000000\n");
  system.write("sys/fs/cgroup/memory/a/memory.stat",
               "inactive_file 1\ntotal_inactive_file 1000000\n");
  CHECK(system.available() == kMiB);
}

TEST_CASE("resident_bytes: what is written to is held, and the peak remembers it") {
  const uint64_t before = resident_bytes();
  REQUIRE(before > 0);
  {
    std::vector<char> large(64 * kMiB, 1);
    CHECK(std::accumulate(large.begin(), large.end(), int64_t{0}) == 64 * int64_t{kMiB});
    CHECK(resident_bytes() >= before + 60 * kMiB);
  }
  CHECK(peak_resident_bytes() >= before + 60 * kMiB);
  CHECK(available_memory().value_or(1) > 0);
}
