// A folder that `Dataset.save_to_disk` wrote.
#include "datasets/dataset_reader.h"
#include "datasets/record_source.h"

namespace kvcal {

std::unique_ptr<Dataset> open_saved(const fs::path& path, const DatasetOverrides& overrides) {
  return make_dataset(open_records(path, record_keys(), "a data set", overrides.split));
}

}  // namespace kvcal
