#include "datasets/record_source.h"

#include "core/error.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

class JoinedRecords : public RecordSource {
 public:
  JoinedRecords(std::vector<std::unique_ptr<RecordSource>> parts, FileSet files)
      : parts_(std::move(parts)), files_(std::move(files)) {}
  int64_t size() const override { return parts_.size(); }
  Json read(int64_t index) const override {
    const auto [part, own] = parts_.find(index);
    return part->read(own);
  }
  std::string place(int64_t index) const override {
    const auto [part, own] = parts_.find(index);
    return part->place(own);
  }
  void will_read(std::span<const int64_t> indices) const override { parts_.will_read(indices); }
  std::string sha256() const override { return files_.sha256(); }

 private:
  Joined<RecordSource> parts_;
  FileSet files_;
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

}  // namespace kvcal
