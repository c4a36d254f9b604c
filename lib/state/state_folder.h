#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/json.h"

namespace kvcal {

namespace fs = std::filesystem;

/// From where a run can go on: what the journal holds up to here, and the hidden states that the
/// last layer in it left.
struct Checkpoint {
  uint64_t journal_bytes = 0;
  struct Hidden {
    int64_t layer = 0;
    int slot = 0;       ///< folder "hidden-0" or "hidden-1"
    int64_t ranks = 1;  ///< files in it
  };
  std::optional<Hidden> hidden;  ///< nullopt: the journal ends with a whole pass

  /// "after layer 3", "after the forward pass": where a run goes on, for people.
  std::string place() const;
};

/// The folder in which a run keeps how far it is: state.json (fingerprint and checkpoint, replaced
/// in one step), journal.bin, hidden-0 and hidden-1, of which one is complete and the other may be
/// in the making.
class StateFolder {
 public:
  enum class Open {
    kNew,      ///< an earlier run's state is an Error
    kReplace,  ///< it is removed
    kResume,   ///< it is gone on with, if there is one that fits
    kJoin      ///< as kResume, of a state that another rank has opened and holds
  };
  /// Throws Error where the folder cannot be had, holds other things, is in use by another run, or
  /// its fingerprint is another one: that names each field, and both values.
  StateFolder(fs::path path, Json fingerprint, Open how);
  ~StateFolder();
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  const fs::path& path() const { return path_; }
  /// The checkpoint of state.json when it was opened; nullopt: there is none to resume from.
  const std::optional<Checkpoint>& found() const { return found_; }
  fs::path journal() const { return path_ / "journal.bin"; }
  fs::path slot(int number) const { return path_ / ("hidden-" + std::to_string(number)); }
  fs::path hidden_file(int slot_number, int64_t rank) const;
  /// Replaces state.json, flushed. The files it speaks of must be on the disk.
  void write(const Checkpoint& checkpoint) const;
  /// All of it is removed, and the folder.
  void remove();

 private:
  void lock();
  void remove_state() const;
  void check_content() const;
  void read();
  void check_fingerprint(const Json& found) const;

  fs::path path_;
  Json fingerprint_;
  int lock_ = -1;
  std::optional<Checkpoint> found_;
};

}  // namespace kvcal
