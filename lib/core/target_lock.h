#pragma once

#include <filesystem>

namespace kvcal {

/// Lock of an output `target` for this process: a file ".NAME.kvcal-lock" beside it with process
/// and host, removed with the lock. Takes over the lock of a killed process. Does nothing where the
/// file system has no locks.
class TargetLock {
 public:
  /// Throws Error naming target and the process that writes it, and where the file cannot be made.
  explicit TargetLock(const std::filesystem::path& target);
  ~TargetLock();
  TargetLock(const TargetLock&) = delete;
  TargetLock& operator=(const TargetLock&) = delete;

  /// Whether no other process can hold the lock.
  bool is_held() const { return is_held_; }

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
  bool is_held_ = false;
};

}  // namespace kvcal
