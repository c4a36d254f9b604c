#include "datasets/dataset.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "datasets/dataset_json.h"
#include "datasets/dataset_reader.h"
#include "datasets/file_set.h"
#include "datasets/record_source.h"
#include "datasets/tables/table.h"
#include "datasets/text_file.h"

namespace kvcal {

OpenDataset open_arrow, open_described, open_file_set, open_json_array, open_jsonl, open_parquet,
    open_plain_text, open_saved;

const Registry<OpenDataset*>& dataset_readers() {
  static const Registry<OpenDataset*> kReaders{"data set reader",
                                               {
                                                   {"arrow", open_arrow},
                                                   {"described", open_described},
                                                   {"file_set", open_file_set},
                                                   {"json_array", open_json_array},
                                                   {"jsonl", open_jsonl},
                                                   {"parquet", open_parquet},
                                                   {"plain_text", open_plain_text},
                                                   {"saved", open_saved},
                                               }};
  return kReaders;
}

namespace {

constexpr std::string_view kBlank = " \t\r\n";

/// Enough to see whether a record's line is followed by another one.
constexpr size_t kHeadBytes = kMaxRecordBytes + 4096;

std::string_view reader_of_text(std::string_view text, bool is_named_json) {
  const size_t start = text.find_first_not_of(kBlank);
  const char first = start == std::string_view::npos ? ' ' : text[start];
  if (first == '{' && is_json_lines(text)) return "jsonl";
  return is_named_json || first == '{' || first == '[' ? "json_array" : "plain_text";
}

std::string_view reader_by_content(const fs::path& path, bool is_packed, bool is_named_json) {
  if (is_packed) return reader_of_text(head_of_packed(MappedFile(path), kHeadBytes), is_named_json);
  return reader_of_text(TextFile(path).text(), is_named_json);
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    if (bytes[at] < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t point = 0;
    // A character takes four bytes at most.
    const auto rest = static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4));
    const utf8proc_ssize_t taken = utf8proc_iterate(bytes + at, rest, &point);
    if (taken <= 0) return at;
    at += static_cast<size_t>(taken);
  }
  return std::nullopt;
}

bool is_json_lines(std::string_view text) {
  const size_t start = text.find_first_not_of(kBlank);
  if (start == std::string_view::npos || text[start] != '{') return false;
  const size_t end = text.find('\n', start);
  if (end == std::string_view::npos || end - start > kMaxRecordBytes) return false;
  const size_t next = text.find_first_not_of(kBlank, end);
  if (next == std::string_view::npos || text[next] != '{') return false;
  try {
    return parse_json(text.substr(start, end - start)).is_object();
  } catch (const Error&) {
    return false;
  }
}

std::string_view reader_for(const fs::path& path) {
  if (is_folder(path)) return is_saved_dataset(path) ? "saved" : "file_set";
  if (is_pattern(path)) return "file_set";
  const std::string named = data_extension(path, /*is_packed=*/false);
  if (named == ".yaml" || named == ".yml") return "described";
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  if (bytes.starts_with("PAR1")) return "parquet";
  if (bytes.starts_with("ARROW1") || bytes.starts_with("\xff\xff\xff\xff")) return "arrow";
  const bool is_packed = packing_of(bytes) != Packing::kNone;
  const std::string extension = data_extension(path, is_packed);
  const bool is_table = extension == ".parquet" || extension == ".arrow" ||
                        extension == ".feather" || extension == ".ipc";
  if (is_table && is_packed)
    fail(path.string(), ": is a packed table, which cannot be read in place; unpack it first");
  if (is_table) return extension == ".parquet" ? "parquet" : "arrow";
  if (extension == ".jsonl" || extension == ".ndjson") return "jsonl";
  if (extension == ".txt" || extension == ".text" || extension == ".md") return "plain_text";
  return reader_by_content(path, is_packed, extension == ".json");
}

std::unique_ptr<Dataset> open_dataset(const fs::path& path, const DatasetOverrides& overrides) {
  const std::string_view reader = reader_for(path);
  if (reader != "described" && overrides.local_copy)
    fail(path.string(), ": only a descriptor (.yaml) takes another local copy");
  if (overrides.split && reader != "described" && reader != "saved" && reader != "file_set")
    fail(path.string(), ": only a descriptor (.yaml) or a folder takes a split");
  return dataset_readers().at(reader)(path, overrides);
}

std::unique_ptr<RecordSource> open_records(const fs::path& path,
                                           std::span<const std::string> fields,
                                           std::string_view what,
                                           const std::optional<std::string>& split) {
  const std::string_view reader = reader_for(path);
  if (reader == "jsonl") return open_json_lines(path);
  if (reader == "json_array") return open_json_value(path);
  if (reader == "parquet") return open_table_records(path, TableFormat::kParquet, fields);
  if (reader == "arrow") return open_table_records(path, TableFormat::kArrow, fields);
  if (reader != "saved" && reader != "file_set")
    fail(path.string(), ": ", what, " must be JSON, JSON lines or a table (.json, .jsonl, ",
         ".parquet, .arrow)");
  const bool is_saved = reader == "saved";
  FileSet set = is_saved ? find_saved_files(path, split) : find_data_files(path, split);
  std::vector<std::unique_ptr<RecordSource>> parts;
  for (const fs::path& file : set.files)
    parts.push_back(is_saved ? open_table_records(file, TableFormat::kArrow, fields,
                                                  /*may_be_empty=*/true)
                             : open_records(file, fields, what));
  auto joined = join_records(std::move(parts), std::move(set));
  if (joined->size() == 0) fail(path.string(), ": holds no record, its tables have no row");
  return joined;
}

std::string Dataset::whole_text() const {
  std::string all;
  for (int64_t i = 0; i < size(); ++i) {
    const Record one = record(i);
    const auto* text = std::get_if<std::string>(&one.content);
    if (!text) fail(one.place, ": holds no text, which is needed to read the data set as one");
    if (i > 0) all += "\n\n";
    all += *text;
  }
  return all;
}

}  // namespace kvcal
