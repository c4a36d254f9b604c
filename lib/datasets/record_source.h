#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "datasets/dataset.h"
#include "datasets/file_set.h"

namespace kvcal {

/// The records of a data set file, as JSON values that are read one at a time. Not for several
/// threads at once: sources keep what they read last.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual int64_t size() const = 0;
  /// The value at index, an object unless holds_ids(). Throws Error with the place.
  virtual Json read(int64_t index) const = 0;
  /// "chat.jsonl:17", "chat.json:12, record 3" or "chat.parquet: row 17", rows counted from 0.
  virtual std::string place(int64_t index) const = 0;
  /// The values are arrays of token ids.
  virtual bool holds_ids() const { return false; }
  /// Told before reading: the values at these indices will be asked for, in any order.
  virtual void will_read(std::span<const int64_t> /*indices*/) const {}
  virtual std::string sha256() const = 0;
};

/// The keys that make a record, in the order they are judged.
std::span<const std::string> record_keys();

/// Opens what path names: one file of JSON, JSON lines, Parquet or Arrow, a saved data set, or a
/// folder or pattern of such files. fields: those that will be used; tables are read for no others.
/// split: as in DatasetOverrides. what: for the message where it is none of them ("a descriptor's
/// local copy").
std::unique_ptr<RecordSource> open_records(const std::filesystem::path& path,
                                           std::span<const std::string> fields,
                                           std::string_view what,
                                           const std::optional<std::string>& split = {});

/// The sources of files one after the other. Throws Error naming path where they hold no record.
std::unique_ptr<RecordSource> join_records(std::vector<std::unique_ptr<RecordSource>> parts,
                                           FileSet files, const std::filesystem::path& path);

/// A data set of a source's values.
std::unique_ptr<Dataset> make_dataset(std::unique_ptr<RecordSource> source);

}  // namespace kvcal
