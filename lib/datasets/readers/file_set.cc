// A folder or a pattern of data files, each of its own kind.
#include "datasets/data_files.h"

#include "core/folder.h"
#include "core/interrupt.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

class JoinedDataset : public Joined<Dataset> {
 public:
  using Joined::Joined;
  Record record(int64_t index) const override {
    const auto [part, own] = find(index);
    return part->record(own);
  }
  /// Each file as it would be alone, with an empty line between them.
  std::string whole_text() const override {
    std::string all;
    for (const auto& part : parts()) {
      if (!all.empty()) all += "\n\n";
      all += part->whole_text();
    }
    return all;
  }
};

std::unique_ptr<Dataset> open_file_set(const fs::path& path, const DatasetOverrides& overrides) {
  FileSet set = find_data_files(path, overrides.split);
  std::vector<std::unique_ptr<Dataset>> parts;
  for (const fs::path& file : set.files) {
    throw_if_interrupted();
    parts.push_back(open_dataset(file, {.records = overrides.records}));
  }
  return std::make_unique<JoinedDataset>(std::move(parts), std::move(set));
}

std::unique_ptr<RecordSource> open_records_of_set(const fs::path& path,
                                                  const RecordRequest& request) {
  FileSet set = find_data_files(path, request.split);
  std::vector<std::unique_ptr<RecordSource>> parts;
  for (const fs::path& file : set.files) {
    throw_if_interrupted();
    parts.push_back(open_records(file, {.fields = request.fields,
                                        .what = request.what,
                                        .max_record_bytes = request.max_record_bytes,
                                        .delimiter = request.delimiter}));
  }
  return join_records(std::move(parts), std::move(set), path);
}

}  // namespace

DatasetReader file_set_reader() {
  return {.open_records = open_records_of_set,
          .open = open_file_set,
          .reads_path = [](const fs::path& path) { return is_folder(path) || is_pattern(path); },
          .files = [](const fs::path& path) { return find_data_files(path, {}).files; },
          .takes_split = true,
          .takes_delimiter = true};
}

}  // namespace kvcal
