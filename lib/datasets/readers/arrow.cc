#include "datasets/dataset_reader.h"
#include "datasets/record_source.h"
#include "datasets/tables/table.h"

namespace kvcal {

std::unique_ptr<Dataset> open_arrow(const fs::path& path, const DatasetOverrides&) {
  return make_dataset(open_table_records(path, TableFormat::kArrow, record_keys()));
}

}  // namespace kvcal
