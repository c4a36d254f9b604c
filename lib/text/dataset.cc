#include "text/dataset.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/file.h"
#include "core/json.h"
#include "text/dataset_reader.h"

namespace kvcal {

OpenDataset open_described, open_json_array, open_jsonl, open_plain_text;

const Registry<OpenDataset*>& dataset_readers() {
  static const Registry<OpenDataset*> kReaders{"data set reader",
                                               {
                                                   {"described", open_described},
                                                   {"json_array", open_json_array},
                                                   {"jsonl", open_jsonl},
                                                   {"plain_text", open_plain_text},
                                               }};
  return kReaders;
}

namespace {

/// How a file that is no UTF-8 text begins, and what to do about it.
struct Signature {
  std::string_view bytes, message;
};

using namespace std::string_view_literals;
constexpr std::array kUnreadable{
    Signature{
        "PAR1"sv,
        "is a Parquet file, which cannot be read yet; convert it to JSON lines, for example with "
        "python -c \"import datasets; datasets.Dataset.from_parquet('IN.parquet')"
        ".to_json('OUT.jsonl')\""sv},
    Signature{"\x1f\x8b"sv, "is compressed with gzip; unpack it first"sv},
    Signature{"\x28\xb5\x2f\xfd"sv, "is compressed with zstd; unpack it first"sv},
    Signature{"\xfd"
              "7zXZ\0"sv,
              "is compressed with xz; unpack it first"sv},
    Signature{"BZh"sv, "is compressed with bzip2; unpack it first"sv},
    Signature{"PK\x03\x04"sv, "is a ZIP archive; unpack it first"sv},
    Signature{"\xff\xfe"sv, "is UTF-16 text; convert it to UTF-8"sv},
    Signature{"\xfe\xff"sv, "is UTF-16 text; convert it to UTF-8"sv},
};

constexpr std::string_view kBlank = " \t\r\n";

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

std::string_view reader_by_content(const fs::path& path, bool is_named_json) {
  const MappedFile file(path);
  const std::string_view text = text_of(file);
  const size_t start = text.find_first_not_of(kBlank);
  const char first = start == std::string_view::npos ? ' ' : text[start];
  if (first == '{' && is_json_lines(text)) return "jsonl";
  return is_named_json || first == '{' || first == '[' ? "json_array" : "plain_text";
}

}  // namespace

std::string_view text_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Signature& signature : kUnreadable)
    if (text.starts_with(signature.bytes)) fail(file.path().string(), ": ", signature.message);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return text;
}

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
  const std::string extension = lower_extension(path);
  if (extension == ".yaml" || extension == ".yml") return "described";
  if (extension == ".jsonl" || extension == ".ndjson") return "jsonl";
  if (extension == ".txt" || extension == ".text" || extension == ".md") return "plain_text";
  return reader_by_content(path, extension == ".json");
}

std::unique_ptr<Dataset> open_dataset(const fs::path& path, const DatasetOverrides& overrides) {
  if (fs::is_directory(path))
    fail(path.string(), ": is a folder, expected a data set file (.jsonl, .json, .txt or .yaml)");
  const std::string_view reader = reader_for(path);
  if (reader != "described" && (overrides.local_copy || overrides.split))
    fail(path.string(), ": only a descriptor (.yaml) takes another local copy or split");
  return dataset_readers().at(reader)(path, overrides);
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
