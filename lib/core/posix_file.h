#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace kvcal {

namespace fs = std::filesystem;

/// Throws SystemError, or Error where nothing is there: path, what failed, and the system's reason.
[[noreturn]] void fail_code(const fs::path& path, std::string_view what, std::error_code reason);
/// The same with errno's reason.
[[noreturn]] void fail_errno(const fs::path& path, std::string_view what);

/// Calls `call` again as long as a signal interrupts it, and returns its result.
template <class Call>
auto retried(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

/// The descriptor of path, which other programs do not inherit; -1, and errno, where it cannot be
/// opened.
inline int open_file(const fs::path& path, int flags, mode_t mode = 0) {
  return retried([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
}

/// Cuts or lengthens a file, and makes what was written durable. Throw Error: path and reason.
void cut_file(int descriptor, uint64_t size, const fs::path& path);
void flush_file(int descriptor, const fs::path& path);

enum class Locked {
  kYes,
  kNo,      ///< somebody else has it
  kCannot,  ///< errno says why: a file system without locks
};
/// Locks an open file, mode LOCK_SH or LOCK_EX, without waiting for whoever has it.
Locked try_lock(int descriptor, int mode);

/// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0)
      : value_(open_file(path, flags, mode)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

/// Writes all of bytes, at the descriptor's place or at offset; resumes what a signal or the system
/// cut short. Throws Error: path and the system's reason.
void write_all(int descriptor, std::span<const std::byte> bytes, const fs::path& path);
void write_all_at(int descriptor, std::span<const std::byte> bytes, uint64_t offset,
                  const fs::path& path);
/// Fills bytes with what lies at offset; how many there were before the file's end. Throws Error as
/// write_all.
size_t read_at(int descriptor, std::span<std::byte> bytes, uint64_t offset, const fs::path& path);

/// A new file in folder that has no name and goes away with its descriptor; -1, and errno, where it
/// cannot be made.
int unnamed_file(const fs::path& folder);

/// Makes the names in folder durable; where the file system cannot, there is nothing better to do.
inline void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY);
  if (descriptor.get() >= 0) retried([&] { return ::fsync(descriptor.get()); });
}

}  // namespace kvcal
