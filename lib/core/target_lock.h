#pragma once

#include <filesystem>

namespace kvcal {

/// Says that this process writes the output `target`, as long as it lives: a file
/// ".NAME.kvcal-lock" beside it that names process and host, and goes with the lock. One that a
/// killed process left is taken over. Where the file system has no locks there is none.
class TargetLock {
 public:
  /// Throws Error naming target and who writes it; and where the file cannot be made.
  explicit TargetLock(const std::filesystem::path& target);
  ~TargetLock();
  TargetLock(const TargetLock&) = delete;
  TargetLock& operator=(const TargetLock&) = delete;

  /// Whether nobody else can hold it.
  bool is_held() const { return is_held_; }

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
  bool is_held_ = false;
};

}  // namespace kvcal
