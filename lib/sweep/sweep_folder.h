#pragma once

#include <optional>
#include <string>

#include "core/diagnostics.h"
#include "core/file.h"
#include "core/json.h"
#include "core/posix_file.h"

namespace kvcal {

/// The output folder of a sweep: results of pieces, and the tables made of them. A piece is named
/// by the fingerprint of everything that determines it, so a file that exists is never outdated.
class SweepFolder {
 public:
  /// Who else may use the folder while this object lives.
  enum class Use {
    kWhole,  ///< nobody: any other run is refused
    kPart,   ///< other runs that do some cells each
    kTask,   ///< the run that started this task holds the lock
    kLook,   ///< anybody: the folder is only read, and need not exist
  };
  /// Makes the folder where it does not exist. Throws Error where it holds something else, or
  /// another run uses it; warns where the file system has no locks.
  SweepFolder(const fs::path& path, Use use, Diagnostics& diagnostics);

  const fs::path& path() const { return path_; }
  fs::path cell(const std::string& of) const { return piece("cells", of, ".json"); }
  /// Why the cell failed; removed when it is tried again.
  fs::path cell_error(const std::string& of) const { return piece("cells", of, ".error.json"); }
  /// A manifest, as a checkpoint made with the scales would have it.
  fs::path calibration(const std::string& of) const { return piece("calibrations", of, ".json"); }
  fs::path checkpoint(const std::string& of) const { return piece("checkpoints", of, ""); }
  fs::path statistics(const std::string& of) const {
    return piece("statistics", of, ".safetensors");
  }
  fs::path results() const { return path_ / "results.json"; }
  fs::path csv() const { return path_ / "results.csv"; }
  fs::path machine() const { return path_ / "machine.json"; }
  fs::path timings() const { return path_ / "timings.json"; }
  fs::path hashes() const { return path_ / "hashes.json"; }

  /// The file's content; nullopt where it does not exist.
  std::optional<Json> read(const fs::path& file) const;
  /// The same for a file that can be made again: one that is no valid JSON object counts as absent.
  /// Throws Error for a file that cannot be read.
  std::optional<Json> read_if_sound(const fs::path& file) const;
  /// The content of a piece's file that write_piece wrote; nullopt where it does not exist, is of
  /// another piece, or has changed since.
  std::optional<Json> read_piece(const fs::path& file) const;
  /// The result that a cell's file holds; nullopt where the cell has to be measured.
  std::optional<Json> result(const std::string& fingerprint) const;
  /// Replaces the file at once. A file that has this content already is left as it is.
  void write(const fs::path& file, const Json& content) const;
  /// write with a last key "sha256" that read_piece checks.
  void write_piece(const fs::path& file, Json content) const;
  bool may_write() const { return use_ != Use::kLook; }
  bool is_whole() const { return use_ == Use::kWhole; }
  /// A kill on the way leaves the checkpoint whole, or removes it.
  void remove_checkpoint(const std::string& fingerprint) const;

  /// Waits until no other process makes the piece, and keeps others waiting while it lives.
  class PieceLock {
   public:
    PieceLock(const SweepFolder& folder, const std::string& fingerprint);

   private:
    OwnFile file_;
  };

 private:
  void check() const;
  void lock(Diagnostics& diagnostics);
  void remove_stale() const;
  fs::path piece(const char* kind, const std::string& fingerprint, const char* ending) const;

  fs::path path_;
  Use use_;
  std::optional<OwnFile> lock_;
};

}  // namespace kvcal
