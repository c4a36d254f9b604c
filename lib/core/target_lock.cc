#include "core/target_lock.h"

#include <sys/stat.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "core/host_name.h"
#include "core/posix_file.h"

namespace kvcal {
namespace {

/// Whether path still names the open file; its holder may have removed it.
bool is_same_file(int descriptor, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::string this_process() {
  return "process " + std::to_string(::getpid()) + " on " + host_name();
}

/// Text of the holder, which may be anything. The holder writes it at once, so the wait is short.
std::string holder(int descriptor, const fs::path& file) {
  constexpr std::chrono::milliseconds kPause{5};
  std::array<std::byte, 300> bytes;
  for (int tries = 0; tries < 100; ++tries) {
    const size_t count = read_at(descriptor, bytes, 0, file);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), count);
    if (text.starts_with("process ")) return text;
    std::this_thread::sleep_for(kPause);
  }
  return "another process";
}

}  // namespace

TargetLock::TargetLock(const fs::path& target)
    : file_(target.parent_path() / ("." + target.filename().string() + ".kvcal-lock")) {
  for (;;) {
    descriptor_ = open_file(file_, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) fail_errno(file_, "cannot create");
    const Locked locked = try_lock(descriptor_, LOCK_EX);
    is_held_ = locked == Locked::kYes;
    if (locked == Locked::kNo) {
      const std::string who = holder(descriptor_, file_);
      ::close(descriptor_);
      fail(target.string(), ": is being written by ", who, "; let it end, or give another output");
    }
    if (!is_held_ || is_same_file(descriptor_, file_)) break;
    ::close(descriptor_);
  }
  // Only a hint for people, so a failure to read it is accepted.
  const std::string who = this_process();
  if (::ftruncate(descriptor_, 0) == 0)
    static_cast<void>(retried([&] { return ::pwrite(descriptor_, who.data(), who.size(), 0); }));
}

TargetLock::~TargetLock() {
  ::unlink(file_.c_str());  // still held: nobody else has this name open and locked
  ::close(descriptor_);
}

}  // namespace kvcal
