#include "sweep_folder.h"

#include <sys/file.h>

#include <array>
#include <chrono>
#include <thread>

#include "core/interrupt.h"
#include "core/posix_file.h"

namespace kvcal {
namespace {

constexpr std::string_view kLockName = "sweep.lock";
constexpr std::array<std::string_view, 5> kFolders{"cells", "calibrations", "checkpoints",
                                                   "statistics", "locks"};

/// Enough of a fingerprint to tell a sweep's pieces apart.
std::string short_name(const std::string& fingerprint) {
  return fingerprint.substr(0, 24);
}

}  // namespace

SweepFolder::SweepFolder(const fs::path& path, Use use) : path_(path) {
  if (use == Use::kTask) return;
  make();
  lock(use);
  if (use == Use::kWhole) remove_stale();
}

SweepFolder::~SweepFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void SweepFolder::make() {
  std::error_code error;
  const bool is_there = fs::exists(path_, error);
  if (is_there && !fs::is_directory(path_, error)) fail(path_.string(), ": is no folder");
  if (is_there && !fs::is_empty(path_, error) && !fs::exists(path_ / kLockName, error))
    fail(path_.string(), ": holds something else than a sweep's results; name a new folder");
  for (const std::string_view folder : kFolders) {
    fs::create_directories(path_ / folder, error);
    if (error) fail((path_ / folder).string(), ": cannot create folder: ", error.message());
  }
}

void SweepFolder::lock(Use use) {
  const fs::path file = path_ / kLockName;
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) fail_errno(file, "cannot create file");
  if (::flock(lock_, (use == Use::kWhole ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return;
  ::close(lock_);
  lock_ = -1;
  fail(path_.string(), ": is in use by another run of sweep; wait for it, or name another folder");
}

/// Files that killed runs had not finished.
void SweepFolder::remove_stale() const {
  std::error_code error;
  const auto clean = [&](const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') && name.find(".partial-") != std::string::npos)
        fs::remove_all(entry.path(), error);
    }
  };
  clean(path_);
  for (const std::string_view folder : kFolders) clean(path_ / folder);
}

fs::path SweepFolder::cell(const std::string& fingerprint) const {
  return path_ / "cells" / (short_name(fingerprint) + ".json");
}
fs::path SweepFolder::cell_error(const std::string& fingerprint) const {
  return path_ / "cells" / (short_name(fingerprint) + ".error.json");
}
fs::path SweepFolder::calibration(const std::string& fingerprint) const {
  return path_ / "calibrations" / (short_name(fingerprint) + ".json");
}
fs::path SweepFolder::checkpoint(const std::string& fingerprint) const {
  return path_ / "checkpoints" / short_name(fingerprint);
}
fs::path SweepFolder::statistics(const std::string& fingerprint) const {
  return path_ / "statistics" / (short_name(fingerprint) + ".safetensors");
}

std::optional<Json> SweepFolder::read(const fs::path& file) const {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  return in_context(file.string(), [&] { return parse_json(read_text(file)); });
}

void SweepFolder::write(const fs::path& file, const Json& content) const {
  write_file_atomically(file, dump_json(content), true);
}

SweepFolder::PieceLock::PieceLock(const SweepFolder& folder, const std::string& fingerprint) {
  const fs::path file = folder.path_ / "locks" / short_name(fingerprint);
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_errno(file, "cannot create file");
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // a file system without locks
    throw_if_interrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

SweepFolder::PieceLock::~PieceLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace kvcal
