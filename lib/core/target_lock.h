#pragma once

#include <string>
#include <string_view>

#include "core/folder.h"

namespace kvcal {

/// Lock of an output `target` for this process: a file ".TARGET.kvcal-lock" beside it, removed with
/// the lock. Its first line says process and host; each further one is the name of a hidden file or
/// folder that the holder makes beside the target. Takes over the lock of a killed process, and
/// removes what its lines name if the file is of this user; nothing else beside the target is ever
/// removed. Does nothing where the file system has no locks.
class TargetLock {
 public:
  /// What becomes of a target that another process has locked.
  enum class Taken {
    kRefused,
    kShared,  ///< both write, and the last one's output stays; this object then does nothing
  };
  /// folder: of the target, borrowed. Throws Error naming target and the process that writes it;
  /// where the file cannot be made, or is none that kvcal wrote.
  TargetLock(const OpenFolder& folder, std::string target, Taken taken);
  ~TargetLock();
  TargetLock(const TargetLock&) = delete;
  TargetLock& operator=(const TargetLock&) = delete;

  /// Writes down the name of something that is made beside the target next.
  void record(const std::string& scratch);

 private:
  /// Whether the lock is this process's, or the file system has none.
  bool take(Taken taken);
  void remove_left_behind(const std::string& lines) const;
  void write(const std::string& text);

  const OpenFolder& folder_;
  std::string target_, file_;  ///< names in it
  int descriptor_ = -1;
  std::string text_;
};

}  // namespace kvcal
