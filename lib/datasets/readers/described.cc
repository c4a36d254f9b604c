#include <utility>

#include "core/error.h"
#include "core/folder.h"
#include "datasets/data_files.h"
#include "datasets/dataset_reader.h"
#include "datasets/descriptor.h"
#include "datasets/named_dataset.h"
#include "datasets/text_file.h"

namespace kvcal {
namespace {

[[noreturn]] void fail_missing_copy(const fs::path& path, const DatasetDescriptor& descriptor) {
  const std::string configuration =
      descriptor.configuration.empty() ? "" : "'" + descriptor.configuration + "', ";
  fail(path.string(), ": the local copy ", descriptor.local_copy.string(),
       " is missing; save split '", descriptor.split, "' of ", descriptor.source,
       " as JSON lines under that name, for example with python -c \"import datasets; "
       "datasets.load_dataset('",
       descriptor.source, "', ", configuration, "split='", descriptor.split,
       "').to_json('OUT.jsonl')\"");
}

std::unique_ptr<Dataset> open_described(const fs::path& path, const DatasetOverrides& overrides) {
  DatasetDescriptor descriptor = read_descriptor(path, overrides);
  if (!is_there(descriptor.local_copy) && !is_pattern(descriptor.local_copy))
    fail_missing_copy(path, descriptor);
  auto records = in_context(path.string(), [&] {
    return open_records(descriptor.local_copy, fields_of(descriptor.mapping),
                        "a descriptor's local copy");
  });
  if (records->holds_ids())
    fail(path.string(), ": the local copy ", descriptor.local_copy.string(),
         " holds token ids, expected objects with fields");
  return make_dataset(std::move(records), [mapping = std::move(descriptor.mapping)](
                                              const Json& object, std::string place) {
    return map_record(mapping, object, std::move(place));
  });
}

}  // namespace

DatasetReader described_reader() {
  return {.open = open_described,
          .reads_path =
              [](const fs::path& path) {
                const std::string extension = data_extension(path, /*is_packed=*/false);
                return extension == ".yaml" || extension == ".yml" || named_dataset(path, ".yaml");
              },
          .takes_split = true,
          .takes_local_copy = true};
}

}  // namespace kvcal
