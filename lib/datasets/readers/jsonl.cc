#include <algorithm>
#include <utility>

#include "core/byte_units.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "datasets/dataset_reader.h"
#include "datasets/named_dataset.h"

namespace kvcal {
namespace {

constexpr std::string_view kBlank = " \t\r";
constexpr int64_t kLinesTogether = 4096;
/// White space that may follow the longest record.
constexpr size_t kMostBlank = size_t{64} << 10;

/// Where the line that begins there ends; npos: it has more than max_record_bytes, and its end,
/// which may be most of a disk away, is not sought.
size_t line_end(std::string_view text, size_t begin, size_t max_record_bytes) {
  if (text[begin] == '\n') return begin;
  const std::string_view head = text.substr(begin, max_record_bytes + kMostBlank);
  const size_t size = head.find('\n');
  if (size == std::string_view::npos && begin + head.size() < text.size()) return size;
  return begin + std::min(size, head.size());
}

std::unique_ptr<RecordSource> open_json_lines(const fs::path& path, const RecordRequest& request) {
  TextFile file(path);
  const std::string_view text = file.text();
  std::vector<RecordSpan> spans;
  int64_t line = 1;
  size_t dropped = 0;
  for (size_t begin = 0; begin < text.size(); ++line) {
    if (line % kLinesTogether == 0) throw_if_interrupted();
    const size_t end = line_end(text, begin, request.max_record_bytes);
    if (end == std::string_view::npos)
      fail(path.string(), ":", line, ": the line has over ", limit_text(request.max_record_bytes),
           ", which is the limit; --max-record-bytes sets another");
    std::string_view content = text.substr(begin, end - begin);
    content = content.substr(0, content.find_last_not_of(kBlank) + 1);
    if (content.size() > request.max_record_bytes)
      in_context(path.string() + ":" + std::to_string(line),
                 [&] { check_record_size("the line", content.size(), request.max_record_bytes); });
    if (!content.empty()) spans.push_back({begin, content.size(), line});
    begin = end + 1;
    file.drop_passed(dropped, end);
  }
  if (spans.empty()) fail(path.string(), ": holds no record, every line is blank");
  return std::make_unique<JsonRecords>(std::move(file), JsonRecords::Shape::kLines,
                                       std::move(spans));
}

/// True if the first line is a JSON object of its own and another one follows.
bool is_json_lines(std::string_view text, bool /*has_extension*/) {
  const size_t start = text.find_first_not_of(kJsonBlank);
  if (start == std::string_view::npos || text[start] != '{') return false;
  // A line without an end in sight is none of records.
  const size_t size = text.substr(start, kDefaultRecordBytes + kMostBlank).find('\n');
  if (size == std::string_view::npos) return false;
  const size_t end = start + size;
  const size_t next = text.find_first_not_of(kJsonBlank, end);
  if (next == std::string_view::npos || text[next] != '{') return false;
  const std::string_view line = ascii_trimmed(text.substr(start, end - start));
  // The limit of records is not known here, and parsing a long one takes its time.
  if (line.size() > kDefaultRecordBytes) return line.ends_with('}');
  try {
    return parse_json(line).is_object();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

DatasetReader jsonl_reader() {
  return {
      .open_records = open_json_lines,
      .reads_path = [](const fs::path& path) { return named_dataset(path, ".jsonl").has_value(); },
      .files = [](const fs::path&) { return std::vector<fs::path>{}; },
      .extensions = {".jsonl", ".ndjson"},
      .reads_text = is_json_lines};
}

}  // namespace kvcal
