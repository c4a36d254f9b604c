#include "datasets/dataset_reader.h"
#include "datasets/tables/table.h"

namespace kvcal {

DatasetReader parquet_reader() {
  return {.open_records =
              [](const fs::path& path, const RecordRequest& request) {
                return open_table_records(path, TableFormat::kParquet, request);
              },
          .first_bytes = {"PAR1"},
          .extensions = {".parquet"},
          .is_table = true};
}

}  // namespace kvcal
