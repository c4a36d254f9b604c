#include "core/posix_file.h"

#include <stdlib.h>

#include "core/folder.h"

namespace kvcal {
namespace {

/// Calls transfer(offset) for the rest until all is done or it returns 0; returns the number of
/// bytes done.
template <class Transfer>
size_t repeat(size_t size, const fs::path& path, std::string_view what, const Transfer& transfer) {
  size_t done = 0;
  while (done < size) {
    const ssize_t count = retried([&] { return transfer(done); });
    if (count < 0) fail_errno(path, what);
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

void expect_written(size_t written, size_t size, const fs::path& path) {
  if (written < size)
    fail(path.string(), ": cannot write: the system took ", written, " of ", size, " bytes");
}

/// The user knows no name that kvcal hides, but its folder.
[[noreturn]] void fail_open(const fs::path& path, bool creates) {
  const std::error_code reason(errno, std::generic_category());
  if (!creates) fail_code(path, "cannot open", reason);
  if (!path.filename().string().starts_with('.')) fail_code(path, "cannot create", reason);
  const fs::path folder = path.parent_path();
  fail_code(folder.empty() ? "." : folder, "cannot create a file here", reason);
}

}  // namespace

void fail_code(const fs::path& path, std::string_view what, std::error_code reason) {
  const std::string message = path.string() + ": " + std::string(what) + ": " + reason.message();
  const bool is_absent =
      reason == std::errc::no_such_file_or_directory || reason == std::errc::not_a_directory;
  if (is_absent) throw Error(message);
  throw SystemError(message);
}

void fail_errno(const fs::path& path, std::string_view what) {
  fail_code(path, what, {errno, std::generic_category()});
}

Locked try_lock(int descriptor, int mode) {
  if (retried([&] { return ::flock(descriptor, mode | LOCK_NB); }) == 0) return Locked::kYes;
  return errno == EWOULDBLOCK ? Locked::kNo : Locked::kCannot;
}

bool is_still_at(int descriptor, const fs::path& path, int folder) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 &&
         ::fstatat(folder, path.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         identity_of(open) == identity_of(named);
}

namespace {

/// Opens as flags say, and says whether it made the file.
int open_or_make(int folder, const fs::path& name, int flags, mode_t mode, bool& is_made) {
  for (;;) {
    const int found = open_file(name, flags & ~O_CREAT, 0, folder);
    if (found >= 0 || errno != ENOENT || (flags & O_CREAT) == 0) return found;
    const int made = open_file(name, flags | O_EXCL, mode, folder);
    is_made = made >= 0;
    if (is_made || errno != EEXIST) return made;  // else another process made it in between
  }
}

}  // namespace

OwnFile::OwnFile(const OpenFolder& folder, const std::string& name, int flags, mode_t mode)
    : OwnFile(folder.get(), name, folder / name, flags, mode, /*is_made=*/false) {}

OwnFile::OwnFile(int folder, const fs::path& name, const fs::path& shown, int flags, mode_t mode,
                 bool is_made)
    : descriptor_(open_or_make(folder, name, flags | O_NOFOLLOW | O_NONBLOCK, mode, is_made)) {
  if (descriptor_.get() < 0 && errno == ELOOP)
    fail(shown.string(), ": is a link, expected a file of kvcal's own");
  struct stat status {};
  if (descriptor_.get() < 0 || ::fstat(descriptor_.get(), &status) != 0) {
    const int reason = errno;
    if (is_made) ::unlinkat(folder, name.c_str(), 0);
    errno = reason;
    fail_open(shown, (flags & O_CREAT) != 0);
  }
  if (!S_ISREG(status.st_mode) || status.st_nlink > 1)
    fail(shown.string(),
         ": is no regular file or has a second name, expected a file of kvcal's own");
  size_ = static_cast<uint64_t>(status.st_size);
}

void write_all(int descriptor, std::span<const std::byte> bytes, const fs::path& path) {
  const size_t written = repeat(bytes.size(), path, "cannot write", [&](size_t done) {
    return ::write(descriptor, bytes.data() + done, bytes.size() - done);
  });
  expect_written(written, bytes.size(), path);
}

void write_all_at(int descriptor, std::span<const std::byte> bytes, uint64_t offset,
                  const fs::path& path) {
  const size_t written = repeat(bytes.size(), path, "cannot write", [&](size_t done) {
    return ::pwrite(descriptor, bytes.data() + done, bytes.size() - done,
                    static_cast<off_t>(offset + done));
  });
  expect_written(written, bytes.size(), path);
}

size_t read_at(int descriptor, std::span<std::byte> bytes, uint64_t offset, const fs::path& path) {
  return repeat(bytes.size(), path, "cannot read", [&](size_t done) {
    return ::pread(descriptor, bytes.data() + done, bytes.size() - done,
                   static_cast<off_t>(offset + done));
  });
}

void cut_file(int descriptor, uint64_t size, const fs::path& path) {
  if (retried([&] { return ::ftruncate(descriptor, static_cast<off_t>(size)); }) != 0)
    fail_errno(path, "cannot set its length");
}

void flush_file(int descriptor, const fs::path& path) {
  // Some file systems cannot flush, which is accepted.
  if (retried([&] { return ::fsync(descriptor); }) != 0 && errno != EINVAL && errno != EROFS)
    fail_errno(path, "cannot flush");
}

int unnamed_file(const fs::path& folder) {
  const std::string pattern = (folder / ".kvcal-scratch-XXXXXX").string();
  std::string name;
  const int descriptor = retried([&] {
    name = pattern;
    return ::mkostemp(name.data(), O_CLOEXEC);
  });
  if (descriptor >= 0) ::unlink(name.c_str());
  return descriptor;
}

}  // namespace kvcal
