#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace kvcal {

namespace fs = std::filesystem;
class OpenFolder;

/// Throws SystemError, or Error where path does not exist: path, what failed, and the system's
/// reason.
[[noreturn]] void fail_code(const fs::path& path, std::string_view what, std::error_code reason);
/// fail_code with errno's reason.
[[noreturn]] void fail_errno(const fs::path& path, std::string_view what);

/// Repeats `call` while a signal interrupts it, and returns its result.
template <class Call>
auto retried(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

/// Opens path with a descriptor that other programs do not inherit; -1, and errno, where that
/// fails. folder: the open folder in which a relative path begins.
inline int open_file(const fs::path& path, int flags, mode_t mode = 0, int folder = AT_FDCWD) {
  return retried([&] { return ::openat(folder, path.c_str(), flags | O_CLOEXEC, mode); });
}

/// Sets the size of a file; flushes a file to disk. Both throw Error: path and reason.
void cut_file(int descriptor, uint64_t size, const fs::path& path);
void flush_file(int descriptor, const fs::path& path);

enum class Locked {
  kYes,
  kNo,      ///< another process has it
  kCannot,  ///< a file system without locks; errno has the reason
};
/// Locks an open file, mode LOCK_SH or LOCK_EX, without waiting.
Locked try_lock(int descriptor, int mode);

/// Device and inode: the same file has the same, by whatever name.
using FileIdentity = std::pair<dev_t, ino_t>;
inline FileIdentity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino};
}

/// Whether path, no link, still names the open file: who held its lock before may have removed it.
/// folder: as open_file has it.
bool is_still_at(int descriptor, const fs::path& path, int folder = AT_FDCWD);

/// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0, int folder = AT_FDCWD)
      : value_(open_file(path, flags, mode, folder)) {}
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// Opens a file that only this program writes, and makes it where flags say so; what is there must
/// be a regular file with one name, because a link would lead to somebody else's. Throws Error, and
/// then leaves no file that it made.
class OwnFile {
 public:
  OwnFile(const fs::path& path, int flags, mode_t mode = 0666)
      : OwnFile(AT_FDCWD, path, path, flags, mode, /*is_made=*/false) {}
  /// The file of this name in an open folder.
  OwnFile(const OpenFolder& folder, const std::string& name, int flags, mode_t mode = 0666);
  int get() const { return descriptor_.get(); }
  /// The descriptor, which the caller closes.
  int release() { return descriptor_.release(); }
  uint64_t size() const { return size_; }

 private:
  OwnFile(int folder, const fs::path& name, const fs::path& shown, int flags, mode_t mode,
          bool is_made);
  Descriptor descriptor_;
  uint64_t size_ = 0;  ///< when it was opened
};

/// Writes all of bytes, at the descriptor's position or at offset; continues after a signal or a
/// partial write. Throws Error: path and the system's reason.
void write_all(int descriptor, std::span<const std::byte> bytes, const fs::path& path);
void write_all_at(int descriptor, std::span<const std::byte> bytes, uint64_t offset,
                  const fs::path& path);
/// Fills bytes from offset on; returns how many there were before the end of the file. Throws Error
/// as write_all does.
size_t read_at(int descriptor, std::span<std::byte> bytes, uint64_t offset, const fs::path& path);

/// Makes a file without a name in folder, which vanishes with its descriptor; -1, and errno, where
/// that fails.
int unnamed_file(const fs::path& folder);

}  // namespace kvcal
