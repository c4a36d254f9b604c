#include "datasets/dataset.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "core/byte_units.h"
#include "core/error.h"
#include "core/utf8.h"
#include "datasets/data_files.h"
#include "datasets/dataset_reader.h"
#include "datasets/record_mapping.h"

namespace kvcal {

// One row a reader: readers/<name>.cc defines <name>_reader().
#define KVCAL_READERS(ROW) \
  ROW(described)           \
  ROW(saved)               \
  ROW(embedded)            \
  ROW(file_set)            \
  ROW(jsonl)               \
  ROW(json_array)          \
  ROW(delimited)           \
  ROW(plain_text)          \
  ROW(parquet)             \
  ROW(arrow)

#define KVCAL_DECLARE(name) DatasetReader name##_reader();
KVCAL_READERS(KVCAL_DECLARE)

const Registry<DatasetReader>& dataset_readers() {
#define KVCAL_ENTRY(name) {#name, name##_reader()},
  static const Registry<DatasetReader> kTable{"data set reader", {KVCAL_READERS(KVCAL_ENTRY)}};
  return kTable;
}

namespace {

/// Enough to see whether a record's line is followed by another one. The end of a longer line may
/// be most of a disk away.
constexpr size_t kHeadBytes = kDefaultRecordBytes + (size_t{256} << 10);

/// The first reader that recognizes a path by the rule; empty where none does.
template <class Rule>
std::string_view first_reader(const Rule& rule) {
  for (const auto& [name, reader] : dataset_readers().rows())
    if (rule(reader)) return name;
  return {};
}

bool has_extension(const DatasetReader& reader, std::string_view extension) {
  return std::ranges::find(reader.extensions, extension) != reader.extensions.end();
}

std::string_view reader_of_text(std::string_view text, std::string_view extension) {
  return first_reader([&](const DatasetReader& reader) {
    return reader.reads_text && reader.reads_text(text, has_extension(reader, extension));
  });
}

std::string_view reader_by_path(const fs::path& path) {
  return first_reader(
      [&](const DatasetReader& reader) { return reader.reads_path && reader.reads_path(path); });
}

std::string_view reader_by_content(const fs::path& path, bool is_packed,
                                   std::string_view extension) {
  if (is_packed) return reader_of_text(head_of_packed(MappedFile(path), kHeadBytes), extension);
  return reader_of_text(TextFile(path).text().substr(0, kHeadBytes), extension);
}

}  // namespace

std::string_view reader_for(const fs::path& path) {
  if (const auto by_path = reader_by_path(path); !by_path.empty()) return by_path;
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  const auto by_bytes = first_reader([&](const DatasetReader& reader) {
    return std::ranges::any_of(reader.first_bytes,
                               [&](std::string_view first) { return bytes.starts_with(first); });
  });
  if (!by_bytes.empty()) return by_bytes;
  const bool is_packed = packing_of(bytes) != Packing::kNone;
  const std::string extension = data_extension(path, is_packed);
  const auto by_extension = first_reader([&](const DatasetReader& reader) {
    return reader.trusts_extension && has_extension(reader, extension);
  });
  if (by_extension.empty()) return reader_by_content(path, is_packed, extension);
  if (is_packed && dataset_readers().at(by_extension).is_table)
    fail(path.string(), ": is a packed table, which cannot be read in place; unpack it first");
  return by_extension;
}

std::vector<fs::path> dataset_files(const fs::path& path) {
  const DatasetReader* reader = dataset_readers().find(reader_by_path(path));
  return reader && reader->files ? reader->files(path) : std::vector<fs::path>{path};
}

std::unique_ptr<Dataset> open_dataset(const fs::path& path, const DatasetOverrides& overrides) {
  const DatasetReader& reader = dataset_readers().at(reader_for(path));
  if (overrides.local_copy && !reader.takes_local_copy)
    fail(path.string(), ": only a descriptor (.yaml) takes another local copy");
  if (overrides.split && !reader.takes_split)
    fail(path.string(), ": only a descriptor (.yaml) or a folder takes a split");
  const std::string& delimiter = overrides.records.columns.delimiter;
  if (!delimiter.empty() && !reader.takes_delimiter)
    fail(path.string(), ": --delimiter is for CSV, in files that end in .csv or .tsv");
  if (reader.open) return reader.open(path, overrides);
  const RecordRequest request{.fields = record_keys(),
                              .what = "a data set",
                              .split = overrides.split,
                              .max_record_bytes = overrides.records.max_bytes,
                              .delimiter = delimiter};
  if (overrides.records.columns.is_empty())
    return make_dataset(reader.open_records(path, request), to_record);
  return map_dataset(path, mapping_of(overrides.records.columns), request);
}

std::unique_ptr<Dataset> map_dataset(const fs::path& path, RecordMapping mapping,
                                     const RecordRequest& request) {
  const std::vector<std::string> fields = fields_of(mapping);
  auto records = open_records(path, {.fields = fields,
                                     .what = request.what,
                                     .split = request.split,
                                     .max_record_bytes = request.max_record_bytes,
                                     .delimiter = request.delimiter});
  if (records->holds_ids()) fail(path.string(), ": holds token ids, expected objects with fields");
  return make_dataset(std::move(records),
                      [mapping = std::move(mapping)](const Json& object, std::string place) {
                        return map_record(mapping, object, std::move(place));
                      });
}

void check_record_size(std::string_view what, uint64_t bytes, size_t most) {
  if (bytes > most)
    fail(what, " has ", byte_text_beside(most, bytes), ", the limit is ", limit_text(most),
         "; --max-record-bytes sets another");
}

std::unique_ptr<RecordSource> open_records(const fs::path& path, const RecordRequest& request) {
  const DatasetReader& reader = dataset_readers().at(reader_for(path));
  if (!reader.open_records)
    fail(path.string(), ": ", request.what,
         " must be JSON, JSON lines, CSV or a table (.json, .jsonl, ",
         ".csv, .tsv, .parquet, .arrow)");
  return reader.open_records(path, request);
}

std::string Dataset::joined_text(std::span<const int64_t> indices) const {
  std::string all;
  for (const int64_t index : indices) {
    const Record one = record(index);
    const auto* text = std::get_if<std::string>(&one.content);
    if (!text) fail(one.place, ": holds no text, which is needed to read the data set as one");
    if (index != indices.front()) all += "\n\n";
    all += *text;
  }
  return all;
}

std::string Dataset::whole_text() const {
  std::vector<int64_t> indices(static_cast<size_t>(size()));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return joined_text(indices);
}

namespace {

class JoinedRecords : public Joined<RecordSource> {
 public:
  using Joined::Joined;
  Json read(int64_t index) const override {
    const auto [part, own] = find(index);
    return part->read(own);
  }
  std::string place(int64_t index) const override {
    const auto [part, own] = find(index);
    return part->place(own);
  }
};

class SourceDataset : public Dataset {
 public:
  SourceDataset(std::unique_ptr<RecordSource> source, MakeRecord make_record)
      : source_(std::move(source)), make_record_(std::move(make_record)) {}
  int64_t size() const override { return source_->size(); }
  Record record(int64_t index) const override {
    const Json value = source_->read(index);
    std::string place = source_->place(index);
    return in_context(std::string(place), [&] {
      if (source_->holds_ids()) return Record{to_ids(value, "input_ids"), std::move(place)};
      return make_record_(value, std::move(place));
    });
  }
  void will_read(std::span<const int64_t> indices) const override { source_->will_read(indices); }
  std::string sha256() const override { return source_->sha256(); }

 private:
  std::unique_ptr<RecordSource> source_;
  MakeRecord make_record_;
};

}  // namespace

std::unique_ptr<RecordSource> join_records(std::vector<std::unique_ptr<RecordSource>> parts,
                                           FileSet files, const fs::path& path) {
  std::unique_ptr<RecordSource> joined;
  if (parts.size() == 1)
    joined = std::move(parts.front());
  else
    joined = std::make_unique<JoinedRecords>(std::move(parts), std::move(files));
  if (joined->size() == 0) fail(path.string(), ": holds no record, its tables have no row");
  return joined;
}

std::unique_ptr<Dataset> make_dataset(std::unique_ptr<RecordSource> source,
                                      MakeRecord make_record) {
  return std::make_unique<SourceDataset>(std::move(source), std::move(make_record));
}

namespace {

/// The parser counts lines and columns from the record's start: names the file's line instead, and
/// no column where the record need not begin its line.
void relocate(Error& error, const RecordSpan& span, bool is_line) {
  constexpr std::string_view kLine = "at line ", kColumn = ", column ";
  std::string message = error.message();
  const size_t at = message.find(kLine), column = message.find(kColumn);
  if (at == std::string::npos || column == std::string::npos) return;
  const size_t number = at + kLine.size(), end = message.find(':', column);
  int64_t line = 0;
  std::from_chars(message.data() + number, message.data() + column, line);
  if (is_line) {
    message.replace(at, column + 2 - at, "at ");
  } else {
    if (line == 1 && end != std::string::npos) message.erase(column, end - column);
    message.replace(number, column - number, std::to_string(line + span.line - 1));
  }
  error = Error(std::move(message));
}

}  // namespace

JsonRecords::JsonRecords(TextFile file, Shape shape, std::vector<RecordSpan> spans)
    : file_(std::move(file)), shape_(shape), spans_(std::move(spans)) {}

std::string JsonRecords::place(int64_t index) const {
  const RecordSpan& span = spans_.at(static_cast<size_t>(index));
  std::string text = file_.path().string() + ":" + std::to_string(span.line);
  if (shape_ != Shape::kLines) text += ", record " + std::to_string(index);
  return text;
}

Json JsonRecords::read(int64_t index) const {
  const RecordSpan& span = spans_.at(static_cast<size_t>(index));
  const std::string_view text = file_.text().substr(span.begin, span.size);
  return in_context(place(index), [&] {
    if (const auto at = utf8::find_invalid(text))
      fail("byte ", *at + 1, " of the record is not UTF-8");
    try {
      return parse_json(text, {.max_bytes = text.size()});
    } catch (Error& error) {
      relocate(error, span, shape_ == Shape::kLines);
      throw;
    }
  });
}

std::string JsonRecords::sha256() const {
  return file_.sha256();
}

}  // namespace kvcal
