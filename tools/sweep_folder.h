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
  /// Appears complete or not at all, in the place of what was there.
  void write(const fs::path& file, const Json& content) const;

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
  void make();
  void lock(Use use);
  void remove_stale() const;

  fs::path path_;
  int lock_ = -1;
};

}  // namespace kvcal
