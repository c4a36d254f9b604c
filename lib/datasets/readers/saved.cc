// A folder that `Dataset.save_to_disk` wrote.
#include "core/folder.h"
#include "datasets/dataset_reader.h"
#include "datasets/tables/table.h"

namespace kvcal {
namespace {

std::unique_ptr<RecordSource> open_saved_records(const fs::path& path,
                                                 const RecordRequest& request) {
  FileSet set = find_saved_files(path, request.split);
  std::vector<std::unique_ptr<RecordSource>> parts;
  for (const fs::path& file : set.files)
    parts.push_back(open_table_records(file, TableFormat::kArrow, request, /*may_be_empty=*/true));
  return join_records(std::move(parts), std::move(set), path);
}

}  // namespace

DatasetReader saved_reader() {
  return {
      .open_records = open_saved_records,
      .reads_path = [](const fs::path& path) { return is_folder(path) && is_saved_dataset(path); },
      .files = [](const fs::path& path) { return find_saved_files(path, {}).files; },
      .takes_split = true};
}

}  // namespace kvcal
