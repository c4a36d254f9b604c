#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/error.h"

namespace kvcal {

namespace fs = std::filesystem;

/// Throws Error: path, what failed, and the system's reason.
[[noreturn]] inline void fail_errno(const fs::path& path, std::string_view what) {
  const int code = errno;
  fail(path.string(), ": ", what, ": ", std::strerror(code));
}

/// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0)
      : value_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

/// Makes the names in folder durable; where the file system cannot, there is nothing better to do.
inline void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY);
  if (descriptor.get() >= 0) ::fsync(descriptor.get());
}

}  // namespace kvcal
