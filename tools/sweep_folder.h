#pragma once

#include <optional>
#include <string>

#include "core/file.h"
#include "core/json.h"

namespace kvcal {

/// The output of a sweep: results of pieces, which are named by what determines them and so are
/// still right or not there, and the tables made of them.
class SweepFolder {
 public:
  /// Whose it is while this lives.
  enum class Use {
    kWhole,  ///< one run's: any other is refused
    kPart,   ///< of several that each do some cells
    kTask,   ///< of a child of either
    kLook,   ///< nobody's: it is read alone, and need not be there
  };
  /// Makes the folder where it is not there. Throws Error where it holds something else, or another
  /// run uses it.
  SweepFolder(const fs::path& path, Use use);
  ~SweepFolder();
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path cell(const std::string& fingerprint) const;
  /// Why it failed; goes away when it is tried again.
  fs::path cell_error(const std::string& fingerprint) const;
  /// A manifest, as a checkpoint made with the scales would have it.
  fs::path calibration(const std::string& fingerprint) const;
  fs::path checkpoint(const std::string& fingerprint) const;
  fs::path statistics(const std::string& fingerprint) const;
  fs::path results() const { return path_ / "results.json"; }
  fs::path csv() const { return path_ / "results.csv"; }
  fs::path machine() const { return path_ / "machine.json"; }
  fs::path timings() const { return path_ / "timings.json"; }

  /// A result, or nothing where it is not there.
  std::optional<Json> read(const fs::path& file) const;
  /// The same for what can be made again: what cannot be understood is not there. Throws Error for
  /// what cannot be read.
  std::optional<Json> read_if_sound(const fs::path& file) const;
  /// What a cell's measurement of that fingerprint gave; nothing where it is not there or cannot be
  /// understood, and has to be done.
  std::optional<Json> result(const std::string& fingerprint) const;
  /// Appears complete or not at all, in the place of what was there. A file that has this content
  /// already is left as it is.
  void write(const fs::path& file, const Json& content) const;
  bool may_write() const { return use_ != Use::kLook; }
  /// A kill on the way leaves the checkpoint whole, or not there.
  void remove_checkpoint(const std::string& fingerprint) const;

  /// Waits until no other process makes the piece. Released with the object.
  class PieceLock {
   public:
    PieceLock(const SweepFolder& folder, const std::string& fingerprint);
    ~PieceLock();
    PieceLock(const PieceLock&) = delete;
    PieceLock& operator=(const PieceLock&) = delete;

   private:
    int descriptor_ = -1;
  };

 private:
  void check() const;
  void make();
  void lock();
  void remove_stale() const;

  fs::path path_;
  Use use_;
  int lock_ = -1;
};

}  // namespace kvcal
