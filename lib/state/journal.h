#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/posix_file.h"

namespace kvcal {

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

/// One call of a forward pass and its result (forward/observation_bytes.h).
struct JournalRecord {
  RecordKind kind{};
  int64_t layer = 0;
  std::span<const std::byte> result;
  uint64_t end = 0;  ///< size of the journal up to here
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

  bool is_at_end() const { return position_ == size_; }
  /// The next record; nullopt at the end. Throws Error for a damaged record.
  std::optional<JournalRecord> next();
  /// End of the last record that next has returned.
  uint64_t position() const { return position_; }

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
