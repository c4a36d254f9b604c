#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/registry.h"
#include "datasets/data_files.h"
#include "datasets/dataset.h"
#include "datasets/record_mapping.h"

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
  /// The caller says before it reads: the values at these indices will be asked for, in any order.
  virtual void will_read(std::span<const int64_t> /*indices*/) const {}
  virtual std::string sha256() const = 0;
};

/// The place of one record in its file's text.
struct RecordSpan {
  uint64_t begin = 0, size = 0;  ///< bytes, after a byte order mark
  int64_t line = 1;              ///< where it begins, from 1
};

/// A file of JSON records, parsed one at a time.
class JsonRecords : public RecordSource {
 public:
  enum class Shape {
    kLines,    ///< an object a line
    kObjects,  ///< objects of one JSON value
    kIds,      ///< arrays of token ids of one JSON value
  };
  JsonRecords(TextFile file, Shape shape, std::vector<RecordSpan> spans);

  int64_t size() const override { return static_cast<int64_t>(spans_.size()); }
  Json read(int64_t index) const override;
  std::string place(int64_t index) const override;
  bool holds_ids() const override { return shape_ == Shape::kIds; }
  std::string sha256() const override;

 private:
  TextFile file_;
  Shape shape_;
  std::vector<RecordSpan> spans_;
};

/// Data sets, or sources, of files one after the other, counted through.
template <class Part>
class Joined : public Part {
 public:
  Joined(std::vector<std::unique_ptr<Part>> parts, FileSet files)
      : parts_(std::move(parts)), files_(std::move(files)) {
    for (const auto& part : parts_) ends_.push_back(size() + part->size());
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  void will_read(std::span<const int64_t> indices) const override {
    std::vector<std::vector<int64_t>> own(parts_.size());
    for (const int64_t index : indices) {
      const size_t part = part_of(index);
      own.at(part).push_back(index - begin_of(part));
    }
    for (size_t part = 0; part < parts_.size(); ++part)
      if (!own[part].empty()) parts_[part]->will_read(own[part]);
  }
  std::string sha256() const override { return files_.sha256(); }

 protected:
  const std::vector<std::unique_ptr<Part>>& parts() const { return parts_; }
  /// The part that holds index, and which of its own it is.
  std::pair<const Part*, int64_t> find(int64_t index) const {
    const size_t part = part_of(index);
    return {parts_.at(part).get(), index - begin_of(part)};
  }

 private:
  size_t part_of(int64_t index) const {
    return static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  }
  int64_t begin_of(size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  std::vector<std::unique_ptr<Part>> parts_;
  FileSet files_;
  std::vector<int64_t> ends_;
};

/// The keys that make a record, in the order they are judged.
std::span<const std::string> record_keys();
/// Of them, those that no text has for its first words.
std::span<const std::string> usual_record_keys();

/// The request of open_records.
struct RecordRequest {
  std::span<const std::string> fields = {};  ///< that will be used; tables are read for no others
  std::string_view what = {};  ///< for the message where it is none of them ("a data set")
  std::optional<std::string> split = {};  ///< as in DatasetOverrides
  size_t max_record_bytes = kDefaultRecordBytes;
  std::string delimiter = {};  ///< of CSV, as in RecordColumns
};

/// Opens what path names: one file of JSON, JSON lines, Parquet or Arrow, a saved data set, or a
/// folder or pattern of such files.
std::unique_ptr<RecordSource> open_records(const std::filesystem::path& path,
                                           const RecordRequest& request);

/// The sources of files one after the other. Throws Error naming path where they hold no record.
std::unique_ptr<RecordSource> join_records(std::vector<std::unique_ptr<RecordSource>> parts,
                                           FileSet files, const std::filesystem::path& path);

/// Makes a record of an object and its place. Throws Error without the place.
using MakeRecord = std::function<Record(const Json& object, std::string place)>;
/// A data set of a source's values.
std::unique_ptr<Dataset> make_dataset(std::unique_ptr<RecordSource> source, MakeRecord make_record);

/// The record an object of a file holds. Throws Error naming the key, what was found and what was
/// expected.
Record to_record(const Json& object, std::string place);

/// The parts of it, for readers that name the fields themselves; key is for messages.
std::vector<TokenId> to_ids(const Json& value, std::string_view key);
/// Throws Error where the mask beside so many token ids hides one: the forward pass attends to all.
void check_mask(const Json& value, std::string_view key, size_t tokens);
/// The same for masks in lists, whose lengths are not looked at. name: of all, for the message.
void check_hides_nothing(const Json& mask, const std::string& name);
Json to_messages(const Json& value, std::string_view key);
/// ShareGPT turns, {"from", "value"} or {"role", "content"}, as messages.
Json turns_to_messages(const Json& value, std::string_view key);

/// "'id', 'title'": an object's keys, the first 20 of them, for messages.
std::string list_keys(const Json& object);
/// Throws Error: key is not in object, which has others; with the nearest of them.
[[noreturn]] void fail_absent(const Json& object, std::string_view key);

/// One kind of data set: how it is recognized, and what opens it. readers/<name>.cc defines it.
struct DatasetReader {
  /// nullptr where its records are no JSON objects.
  std::unique_ptr<RecordSource> (*open_records)(const fs::path& path,
                                                const RecordRequest& request) = nullptr;
  /// nullptr: the records of open_records, by their usual keys.
  std::unique_ptr<Dataset> (*open)(const fs::path& path,
                                   const DatasetOverrides& overrides) = nullptr;

  /// Recognizes a folder, a pattern or a name before any file is opened; nullptr: never.
  bool (*reads_path)(const fs::path& path) = nullptr;
  /// The files that a path stands for, in the order they are read; nullptr: the path itself.
  std::vector<fs::path> (*files)(const fs::path& path) = nullptr;
  std::vector<std::string_view> first_bytes = {};  ///< files that begin so are its, always
  std::vector<std::string_view> extensions = {};   ///< of its files, packing taken off
  /// Files with its extension are its, whatever they hold.
  bool trusts_extension = true;
  /// Recognizes the beginning of a text that no other rule has recognized; nullptr: never.
  bool (*reads_text)(std::string_view text, bool has_extension) = nullptr;

  bool is_table = false;  ///< which cannot be read packed
  bool takes_split = false;
  bool takes_delimiter = false;   ///< its files may be CSV
  bool takes_local_copy = false;  ///< its path describes a data set whose records lie elsewhere
};

/// The records of path's objects by a mapping that does not come from their usual keys; the
/// request's fields do not count.
std::unique_ptr<Dataset> map_dataset(const fs::path& path, RecordMapping mapping,
                                     const RecordRequest& request);

/// Every reader by the name of its file in lib/datasets/readers/, in the order in which they are
/// asked whether they recognize a path.
const Registry<DatasetReader>& dataset_readers();

/// Throws Error for a record of that many bytes where they are more than the limit; what: "the
/// line".
void check_record_size(std::string_view what, uint64_t bytes, size_t most);

/// Characters around values of JSON.
inline constexpr std::string_view kJsonBlank = " \t\r\n";

/// Name of the reader for path: by what it is (a folder, a pattern, a table), by extension, else by
/// content.
std::string_view reader_for(const fs::path& path);

/// Reads the row of CSV or TSV that begins at `begin` into fields, without their quotes, and
/// returns where the next one begins. A blank line is a row without fields. A field in quotes may
/// hold the delimiter, line breaks, which stay as they are, and quotes written twice; elsewhere a
/// quote is a character. "\n", "\r\n" and "\r" end a row. Throws Error for a quoted field that is
/// not closed or is followed by other text. Source: Python's csv module, dialects excel and
/// excel-tab, with strict=True.
size_t read_row(std::string_view text, size_t begin, char delimiter,
                std::vector<std::string>& fields);

/// The delimiter, a comma or a tab, where a text begins with a header: its first row names a key of
/// records (usual_record_keys), and the second one has as many fields.
std::optional<char> delimiter_by_header(std::string_view text);

}  // namespace kvcal
