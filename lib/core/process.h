#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal {

/// Name of this machine: Slurm's where Slurm started the process.
std::string host_name();

/// Runs body on a stack that does not depend on the limit of a shell (ulimit -s), and makes stacks
/// of that size the default of threads that start later, those of libraries too. The depths that
/// readers and templates may recurse to are made for it. The first thread's stack serves where it
/// may grow so far, or its limit can be raised; else body runs in a thread, to which the caller's
/// leaves all signals. Where no thread can be started, body runs on the caller's stack. body may
/// not throw.
int run_on_own_stack(const std::function<int()>& body);

/// From now on the process ends with a message where operator new fails.
void end_without_memory();

/// Keeps memory back for when operator new fails. A failure gives a part of it, because the caller
/// may be a destructor, which must not throw: the next safe point does (core/interrupt.h). The
/// failure that takes the last part throws, and leaves that part to those who remove unfinished
/// outputs and name the error.
void keep_memory_back();
/// Throws std::bad_alloc after a failure.
void throw_if_out_of_memory();

/// What a process may go on doing.
struct Confinement {
  /// Files and folders that it may write, make and remove, with all below them; absent ones are
  /// ignored.
  std::vector<std::filesystem::path> writable;
  bool may_connect = false;  ///< opens and accepts TCP connections
};

/// What the system has taken from the process.
struct Confined {
  bool writing = false;     ///< it cannot write elsewhere
  bool connecting = false;  ///< it can neither connect nor listen by TCP
};

/// Takes all else from this thread and from the threads and processes that it starts later, for
/// good. It needs Landlock: Linux 5.13 for files, 6.7 for connections. An older kernel takes
/// nothing, and nothing is an error: this is a second wall behind the checks of every output.
Confined confine(const Confinement& allowed);

/// Bytes of memory that this process holds now, with mapped pages of files; and the most it ever
/// held. 0 where the system does not tell.
uint64_t resident_bytes();
uint64_t peak_resident_bytes();

/// Bytes that this process can still take before the kernel has to kill a process: what its control
/// groups (v1 or v2) and the machine leave. Pages of files that can be read again do not count.
/// nullopt where the system does not tell. root: the folder of proc and sys.
std::optional<uint64_t> available_memory(const std::filesystem::path& root = "/");

/// Numbers of the CPUs that the calling thread may run on; empty where the system does not tell.
std::vector<int> allowed_cpus();
/// Lets the calling thread, and threads that it starts later, run on these CPUs only. A system may
/// refuse; then nothing changes, which is no error.
void allow_cpus(std::span<const int> cpus);
/// Numbers of a list as Linux writes it, "0-3,8-11", ascending; empty where the text is no such
/// list.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace kvcal
