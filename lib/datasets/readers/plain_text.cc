#include <algorithm>
#include <utility>
#include <vector>

#include "core/byte_units.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/utf8.h"
#include "datasets/data_files.h"
#include "datasets/dataset_reader.h"
#include "datasets/named_dataset.h"

namespace kvcal {
namespace {

constexpr std::string_view kBlank = " \t\r";

/// The place of one paragraph, in bytes after a byte order mark.
struct Paragraph {
  size_t begin = 0, size = 0;
  int64_t line = 1;
};

/// Throws Error for bytes that are no text: a file that is read wrongly must not calibrate
/// anything.
void check_line(std::string_view content, const fs::path& path, int64_t line) {
  if (content.find('\0') != std::string_view::npos)
    fail(path.string(), ":", line, ": holds a NUL byte, expected UTF-8 text");
  if (const auto at = utf8::find_invalid(content))
    fail(path.string(), ":", line, ": byte ", *at + 1, " of the line is not UTF-8");
}

/// Line breaks as "\n", whatever system wrote the file, as Python reads it.
std::string with_plain_breaks(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\r\n", at), text.size());
    result += text.substr(at, end - at);
    if (end < text.size()) result += '\n';
    at = end + 2;
  }
  return result;
}

constexpr int64_t kLinesTogether = 4096;

[[noreturn]] void fail_long(const fs::path& path, int64_t line, size_t max_record_bytes) {
  fail(path.string(), ":", line, ": the paragraph is longer than ", limit_text(max_record_bytes),
       "; separate records by a blank line, or set --max-record-bytes");
}

/// Lines up to a blank one; the last line's own break is left out.
std::vector<Paragraph> paragraphs_of(std::string_view text, const fs::path& path,
                                     size_t max_record_bytes) {
  std::vector<Paragraph> paragraphs;
  bool is_open = false;
  int64_t line = 1;
  for (size_t begin = 0; begin < text.size(); ++line) {
    if (line % kLinesTogether == 0) throw_if_interrupted();
    // The end of a longer line may be most of a disk away.
    const std::string_view head = text.substr(begin, max_record_bytes + 2);
    const size_t size = std::min(head.find('\n'), head.size());
    if (size > max_record_bytes + 1) fail_long(path, line, max_record_bytes);
    const size_t end = begin + size;
    const std::string_view content = text.substr(begin, size);
    check_line(content, path, line);
    const size_t last = content.find_last_not_of(kBlank);
    if (last == std::string_view::npos) {
      is_open = false;
    } else {
      if (!is_open) paragraphs.push_back({begin, 0, line});
      is_open = true;
      Paragraph& paragraph = paragraphs.back();
      paragraph.size = begin + content.size() - (content.ends_with('\r') ? 1 : 0) - paragraph.begin;
      if (paragraph.size > max_record_bytes) fail_long(path, paragraph.line, max_record_bytes);
    }
    begin = end + 1;
  }
  return paragraphs;
}

class PlainTextDataset : public Dataset {
 public:
  PlainTextDataset(TextFile file, size_t max_record_bytes)
      : file_(std::move(file)),
        paragraphs_(paragraphs_of(file_.text(), file_.path(), max_record_bytes)) {
    if (paragraphs_.empty()) fail(file_.path().string(), ": holds no text");
  }
  int64_t size() const override { return static_cast<int64_t>(paragraphs_.size()); }
  Record record(int64_t index) const override {
    const Paragraph& paragraph = paragraphs_.at(static_cast<size_t>(index));
    return {with_plain_breaks(file_.text().substr(paragraph.begin, paragraph.size)),
            file_.path().string() + ":" + std::to_string(paragraph.line)};
  }
  std::string sha256() const override { return file_.sha256(); }
  std::string whole_text() const override { return with_plain_breaks(file_.text()); }

 private:
  TextFile file_;
  std::vector<Paragraph> paragraphs_;
};

std::unique_ptr<Dataset> open_plain_text(const fs::path& path, const DatasetOverrides& overrides) {
  if (!overrides.records.columns.is_empty())
    fail(path.string(),
         ": is read as plain text, which has no columns; name it .csv or .jsonl if "
         "it holds records");
  TextFile file(path);
  if (delimiter_by_header(file.text()))
    fail(path.string(),
         ":1: is a header of columns, expected plain text; name it .csv, or .tsv if "
         "tabs separate them");
  return std::make_unique<PlainTextDataset>(std::move(file), overrides.records.max_bytes);
}

}  // namespace

DatasetReader plain_text_reader() {
  return {
      .open = open_plain_text,
      .reads_path = [](const fs::path& path) { return named_dataset(path, ".txt").has_value(); },
      .files = [](const fs::path&) { return std::vector<fs::path>{}; },
      .extensions = {".txt", ".text", ".md"},
      .reads_text = [](std::string_view, bool) { return true; }};
}

}  // namespace kvcal
