#include "core/confinement.h"

#ifdef __linux__
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "core/posix_file.h"

namespace kvcal {
namespace {

// The kernel's interface (linux/landlock.h), here as of version 4: the headers of a build machine
// may be older than the kernel that the program runs on.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr uint32_t kAskVersion = 1, kPathBeneath = 1;
constexpr uint64_t kWriteFile = uint64_t{1} << 1, kRemoveFolder = uint64_t{1} << 4,
                   kRemoveFile = uint64_t{1} << 5, kMakeAny = uint64_t{0x7f} << 6,
                   kRefer = uint64_t{1} << 13, kTruncate = uint64_t{1} << 14;
constexpr uint64_t kBindTcp = 1, kConnectTcp = 2;
constexpr long kHasRefer = 2, kHasTruncate = 3, kHasTcp = 4;

struct Ruleset {
  uint64_t files = 0, network = 0;
};
struct [[gnu::packed]] PathRule {
  uint64_t rights = 0;
  int32_t descriptor = -1;
};

uint64_t writing_rights(long version) {
  uint64_t rights = kWriteFile | kRemoveFolder | kRemoveFile | kMakeAny;
  if (version >= kHasRefer) rights |= kRefer;
  if (version >= kHasTruncate) rights |= kTruncate;
  return rights;
}

/// Of a single file only these rights can be given.
constexpr uint64_t kRightsOfFile = kWriteFile | kTruncate;

void allow(int ruleset, const fs::path& path, uint64_t rights) {
  const Descriptor place(path, O_PATH);
  struct stat status {};
  if (place.get() < 0 || ::fstat(place.get(), &status) != 0) return;
  const PathRule rule{.rights = S_ISDIR(status.st_mode) ? rights : rights & kRightsOfFile,
                      .descriptor = place.get()};
  ::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0);
}

}  // namespace

Confined confine(const Confinement& allowed) {
  const long version = ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  if (version < 1) return {};
  const bool takes_network = !allowed.may_connect && version >= kHasTcp;
  const Ruleset handled{.files = writing_rights(version),
                        .network = takes_network ? kBindTcp | kConnectTcp : 0};
  // Kernels before version 4 know a shorter structure.
  const size_t size = version >= kHasTcp ? sizeof handled : sizeof handled.files;
  const auto ruleset = static_cast<int>(::syscall(kCreateRuleset, &handled, size, 0));
  if (ruleset < 0) return {};
  for (const fs::path& path : allowed.writable) allow(ruleset, path, handled.files);
  const bool is_done =
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::syscall(kRestrictSelf, ruleset, 0) == 0;
  ::close(ruleset);
  return {.writing = is_done, .connecting = is_done && takes_network};
}

}  // namespace kvcal

#else

namespace kvcal {

Confined confine(const Confinement&) {
  return {};
}

}  // namespace kvcal

#endif
