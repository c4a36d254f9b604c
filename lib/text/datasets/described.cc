#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/sha256.h"
#include "text/dataset_json.h"
#include "text/dataset_reader.h"
#include "text/dataset_record.h"
#include "text/descriptor.h"

namespace kvcal {
namespace {

class DescribedDataset : public Dataset {
 public:
  DescribedDataset(RecordMapping mapping, JsonRecords records)
      : mapping_(std::move(mapping)), records_(std::move(records)) {}
  int64_t size() const override { return records_.size(); }
  Record record(int64_t index) const override {
    const Json object = records_.read(index);
    const std::string place = records_.place(index);
    return in_context(place, [&] { return map_record(mapping_, object, place); });
  }
  std::string sha256() const override { return sha256_of_file(records_.path()); }

 private:
  RecordMapping mapping_;
  JsonRecords records_;
};

[[noreturn]] void fail_missing_copy(const fs::path& path, const Descriptor& descriptor) {
  const std::string configuration =
      descriptor.configuration.empty() ? "" : "'" + descriptor.configuration + "', ";
  fail(path.string(), ": the local copy ", descriptor.local_copy.string(),
       " is missing; save split '", descriptor.split, "' of ", descriptor.source,
       " as JSON lines under that name, for example with python -c \"import datasets; "
       "datasets.load_dataset('",
       descriptor.source, "', ", configuration, "split='", descriptor.split,
       "').to_json('OUT.jsonl')\"");
}

}  // namespace

JsonRecords open_json_records(const fs::path& path, std::string_view what) {
  const std::string_view reader = reader_for(path);
  if (reader == "jsonl") return open_json_lines(path);
  if (reader == "json_array") return open_json_value(path);
  fail(path.string(), ": ", what, " must be JSON or JSON lines (.json, .jsonl)");
}

std::unique_ptr<Dataset> open_described(const fs::path& path, const DatasetOverrides& overrides) {
  Descriptor descriptor = read_descriptor(path, overrides);
  if (!fs::exists(descriptor.local_copy)) fail_missing_copy(path, descriptor);
  JsonRecords records = in_context(path.string(), [&] {
    return open_json_records(descriptor.local_copy, "a descriptor's local copy");
  });
  if (records.shape() == JsonRecords::Shape::kIds)
    fail(path.string(), ": the local copy ", descriptor.local_copy.string(),
         " holds token ids, expected objects with fields");
  return std::make_unique<DescribedDataset>(std::move(descriptor.mapping), std::move(records));
}

}  // namespace kvcal
