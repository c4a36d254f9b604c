#include "core/process.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/posix_file.h"

namespace kvcal {

std::string host_name() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node && *node) return node;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

namespace {

namespace fs = std::filesystem;

/// Control groups v1 express "no limit" by a number near 2^63.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

/// Number after a key at the start of a line, "MemAvailable:   123 kB".
std::optional<uint64_t> number_behind(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digits = line.find_first_of("0123456789", key.size());
    if (digits != std::string::npos) return std::strtoull(line.c_str() + digits, nullptr, 10);
  }
  return std::nullopt;
}

/// Number in a file; nullopt where it holds none ("max").
std::optional<uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// File names of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* idle_file_pages;  ///< in memory.stat
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file "};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file "};

/// Bytes that the control group of folder may still take.
std::optional<uint64_t> left_in(const fs::path& folder, const GroupFiles& files) {
  const auto limit = number_in(folder / files.limit);
  const auto used = number_in(folder / files.used);
  if (!limit || !used || *limit >= kNoLimit) return std::nullopt;
  const uint64_t idle = number_behind(folder / "memory.stat", files.idle_file_pages).value_or(0);
  const uint64_t held = *used - std::min(*used, idle);
  return *limit - std::min(*limit, held);
}

void take_smaller(std::optional<uint64_t>& least, std::optional<uint64_t> value) {
  if (value) least = std::min(least.value_or(*value), *value);
}

/// Applies the limits of the group and its parents. path: from /proc/self/cgroup.
void take_groups(std::optional<uint64_t>& least, const fs::path& mount, std::string_view path,
                 const GroupFiles& files) {
  // Inside a container the path may be the host's, of which only the mount itself is visible.
  fs::path group = fs::path(path).relative_path();
  take_smaller(least, left_in(mount, files));
  for (; !group.empty(); group = group.parent_path())
    take_smaller(least, left_in(mount / group, files));
}

}  // namespace

uint64_t resident_bytes() {
  return number_behind("/proc/self/status", "VmRSS:").value_or(0) * 1024;
}

// getrusage would count a large parent's pages, kept over exec.
uint64_t peak_resident_bytes() {
  return number_behind("/proc/self/status", "VmHWM:").value_or(0) * 1024;
}

std::optional<uint64_t> available_memory(const fs::path& root) {
  std::optional<uint64_t> least;
  if (const auto free = number_behind(root / "proc/meminfo", "MemAvailable:")) least = *free * 1024;
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view path = std::string_view(line).substr(second + 1);
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") {
      take_groups(least, mount, path, kVersion2);
    } else if (controllers.find(",memory,") != std::string::npos) {
      take_groups(least, mount / "memory", path, kVersion1);
    }
  }
  return least;
}

namespace {

/// The usual limit of systems. Only what is used of it takes memory.
constexpr size_t kStackBytes = size_t{8} << 20;

/// Whether the stack of the first thread may grow to kStackBytes. The kernel asks for the limit
/// when the stack grows, not when the program starts.
bool has_room_on_first_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return true;
  if (limit.rlim_cur >= kStackBytes) return true;
  if (limit.rlim_max < kStackBytes) return false;
  limit.rlim_cur = kStackBytes;
  return ::setrlimit(RLIMIT_STACK, &limit) == 0;
}

struct Task {
  const std::function<int()>* body;
  int result;
};

void* run_task(void* argument) {
  auto* task = static_cast<Task*>(argument);
  task->result = (*task->body)();
  return nullptr;
}

/// The thread that only waits leaves signals to the one that works, so that they interrupt its
/// calls.
void leave_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

int run_on_own_stack(const std::function<int()>& body) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return body();
  Task task{.body = &body, .result = 0};
  pthread_t thread{};
  bool is_started = false;
  if (pthread_attr_setstacksize(&attributes, kStackBytes) == 0) {
    pthread_setattr_default_np(&attributes);
    is_started =
        !has_room_on_first_stack() && pthread_create(&thread, &attributes, run_task, &task) == 0;
  }
  pthread_attr_destroy(&attributes);
  if (!is_started) return body();
  leave_signals();
  pthread_join(thread, nullptr);
  return task.result;
}

namespace {

/// malloc maps parts of this size, so that free gives their addresses back to the process.
constexpr size_t kBytesOfPart = size_t{1} << 20;
/// What may be allocated between two safe points, and by those who clean up.
std::array<std::atomic<void*>, 8> kept_parts{};
std::atomic<bool> is_out_of_memory{false};

void give_kept_memory() {
  is_out_of_memory = true;
  for (auto& part : kept_parts)
    if (void* kept = part.exchange(nullptr)) {
      std::free(kept);
      if (&part != &kept_parts.back()) return;
    }
  throw std::bad_alloc();
}

}  // namespace

void end_without_memory() {
  std::set_new_handler([] {
    constexpr std::string_view kMessage = "error: out of memory\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
    std::_Exit(1);
  });
}

void keep_memory_back() {
  // The last first: where memory is short already, it is the one to have.
  for (auto part = kept_parts.rbegin(); part != kept_parts.rend(); ++part)
    if (!*part) *part = std::malloc(kBytesOfPart);
  std::set_new_handler(give_kept_memory);
}

void throw_if_out_of_memory() {
  if (is_out_of_memory) throw std::bad_alloc();
}

namespace {

/// More than any machine has, so that a wrong list takes no memory.
constexpr int kMostCpus = 1 << 16;

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

void allow_cpus(std::span<const int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

std::vector<int> parse_cpu_list(std::string_view text) {
  const char *at = text.data(), *const end = at + text.size();
  std::vector<int> cpus;
  const auto number = [&](int& value) {
    const auto [rest, error] = std::from_chars(at, end, value);
    at = rest;
    return error == std::errc() && value >= (cpus.empty() ? 0 : cpus.back() + 1) &&
           value < kMostCpus;
  };
  while (at != end) {
    int first = 0;
    if ((!cpus.empty() && *at++ != ',') || !number(first)) return {};
    int last = first;
    if (at != end && *at == '-' && (++at, !number(last) || last < first)) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

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
