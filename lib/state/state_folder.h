#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/posix_file.h"

namespace kvcal {
namespace fs = std::filesystem;

/// An Error of a state's files that are not as a run has left them: no run can resume from them.
class DamagedState : public Error {
 public:
  using Error::Error;
};

/// Point from which a run can resume: a length of the journal, and the hidden states after its last
/// layer.
struct Checkpoint {
  uint64_t journal_bytes = 0;
  struct Hidden {
    int64_t layer = 0;
    int slot = 0;       ///< folder "hidden-0" or "hidden-1"
    int64_t ranks = 1;  ///< number of files in it
  };
  std::optional<Hidden> hidden;  ///< nullopt: the journal ends after a whole pass

  /// Point of resumption for messages: "after layer 3", "after the forward pass".
  std::string place() const;
};

/// Folder of a run's state: state.json (fingerprint and checkpoint, replaced atomically),
/// journal.bin, and hidden-0 and hidden-1, of which one is complete and the other may be in
/// progress.
class StateFolder {
 public:
  enum class Open {
    kNew,      ///< an earlier run's state is an Error
    kReplace,  ///< an earlier run's state is removed
    kResume,   ///< an earlier run's state is resumed, if it fits
    kJoin      ///< as kResume, for a state that another rank has opened and holds
  };
  /// Throws Error where the folder cannot be used, holds other files, is in use by another run, or
  /// has another fingerprint; the message then names each field and both values.
  StateFolder(fs::path path, Json fingerprint, Open how);
  ~StateFolder();
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  const fs::path& path() const { return path_; }
  /// Number of the run, by its fingerprint: that of every record and of all hidden states.
  uint64_t run() const { return run_; }
  /// Checkpoint of state.json at the start; nullopt: nothing to resume.
  const std::optional<Checkpoint>& found() const { return found_; }
  fs::path journal() const { return path_ / "journal.bin"; }
  fs::path slot(int number) const { return path_ / ("hidden-" + std::to_string(number)); }
  fs::path hidden_file(int slot_number, int64_t rank) const;
  /// Replaces state.json and flushes it. The files that it names must be on disk.
  void write(const Checkpoint& checkpoint) const;
  /// Removes the folder with all its files.
  void remove();

 private:
  void lock();
  void remove_state() const;
  void check_content() const;
  void read();
  void check_fingerprint(const Json& found) const;

  fs::path path_;
  Json fingerprint_;
  uint64_t run_;
  int lock_ = -1;
  std::optional<Checkpoint> found_;
};

/// Kind of a journal record.
enum class RecordKind : uint32_t {
  kPass = 1,  ///< a forward pass begins; layer is the number of its samples
  kObserve,
  kCountSaturated,
  kAdvance,
  kObserveAndAdvance,
  kHead,
  kCompareAttention,
};

/// One call of a forward pass and its result (layer_result_from).
struct JournalRecord {
  RecordKind kind{};
  int64_t layer = 0;
  std::span<const std::byte> result;
};

/// Bytes of a record in the file: XXH3 of what follows, by the run, then kind, layer, size, result.
/// run: StateFolder::run.
std::vector<std::byte> journal_bytes(uint64_t run, RecordKind kind, int64_t layer,
                                     std::span<const std::byte> result);
/// First bytes of every journal.
std::span<const std::byte> journal_head();

/// Reads the calls of a run in order, from an untrusted file.
class JournalReader {
 public:
  /// Only the first size bytes count; others may be appended meanwhile. Throws Error naming path
  /// where there are fewer, or they are damaged.
  JournalReader(const fs::path& path, uint64_t size, uint64_t run);

  /// The next record; nullopt at the end. Throws Error for a damaged record.
  std::optional<JournalRecord> next();

 private:
  MappedFile file_;
  uint64_t size_, run_, position_ = 0;
};

/// Appends to a journal. Throws Error naming path and the system's reason.
class JournalWriter {
 public:
  /// Keeps the first size bytes of an existing file; 0: starts a new one.
  JournalWriter(const fs::path& path, uint64_t size);
  void append(std::span<const std::byte> bytes);
  /// Returns when all appended records are on the disk.
  void sync();

 private:
  fs::path path_;
  OwnFile descriptor_;
};

}  // namespace kvcal
