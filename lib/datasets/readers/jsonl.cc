#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "datasets/dataset_reader.h"
#include "datasets/named_dataset.h"

namespace kvcal {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::unique_ptr<RecordSource> open_json_lines(const fs::path& path, const RecordRequest& request) {
  TextFile file(path);
  const std::string_view text = file.text();
  std::vector<RecordSpan> spans;
  int64_t line = 1;
  size_t dropped = 0;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
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
  const size_t end = text.find('\n', start);
  if (end == std::string_view::npos) return false;
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
