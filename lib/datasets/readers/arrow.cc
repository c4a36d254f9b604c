#include "datasets/dataset_reader.h"
#include "datasets/tables/table.h"

namespace kvcal {

DatasetReader arrow_reader() {
  return {.open_records =
              [](const fs::path& path, const RecordRequest& request) {
                return open_table_records(path, TableFormat::kArrow, request);
              },
          .first_bytes = {"ARROW1", "\xff\xff\xff\xff"},
          .extensions = {".arrow", ".feather", ".ipc"},
          .is_table = true};
}

}  // namespace kvcal
