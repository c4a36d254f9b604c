#include <utility>

#include "core/error.h"
#include "core/sha256.h"
#include "text/dataset_json.h"
#include "text/dataset_reader.h"
#include "text/dataset_record.h"

namespace kvcal {
namespace {

constexpr std::string_view kBlank = " \t\r";

/// Pages behind the reader are given back now and then, so that a large file does not fill the
/// memory.
constexpr size_t kDropEvery = size_t{64} << 20;

class JsonlDataset : public Dataset {
 public:
  explicit JsonlDataset(JsonRecords records) : records_(std::move(records)) {}
  int64_t size() const override { return records_.size(); }
  Record record(int64_t index) const override {
    const Json object = records_.read(index);
    const std::string place = records_.place(index);
    return in_context(place, [&] { return to_record(object, place); });
  }
  std::string sha256() const override { return sha256_of_file(records_.path()); }

 private:
  JsonRecords records_;
};

}  // namespace

JsonRecords open_json_lines(const fs::path& path) {
  MappedFile file(path);
  const std::string_view text = text_of(file);
  std::vector<RecordSpan> spans;
  int64_t line = 1;
  size_t dropped = 0;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view content = text.substr(begin, end - begin);
    content = content.substr(0, content.find_last_not_of(kBlank) + 1);
    if (content.size() > kMaxRecordBytes)
      fail(path.string(), ":", line, ": the line has ", content.size(), " bytes, the limit is ",
           kMaxRecordBytes);
    if (!content.empty()) spans.push_back({begin, content.size(), line});
    begin = end + 1;
    if (end - dropped >= kDropEvery) {
      file.drop(file.bytes().subspan(dropped, end - dropped));
      dropped = end;
    }
  }
  if (spans.empty()) fail(path.string(), ": holds no record, every line is blank");
  return {std::move(file), JsonRecords::Shape::kLines, std::move(spans)};
}

std::unique_ptr<Dataset> open_jsonl(const fs::path& path, const DatasetOverrides&) {
  return std::make_unique<JsonlDataset>(open_json_lines(path));
}

}  // namespace kvcal
