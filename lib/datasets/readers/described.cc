#include <utility>

#include "core/error.h"
#include "core/folder.h"
#include "datasets/data_files.h"
#include "datasets/dataset_reader.h"
#include "datasets/descriptor.h"
#include "datasets/named_dataset.h"

namespace kvcal {
namespace {

/// A way to make the copy, as far as the descriptor knows one.
std::string advice_on(const DatasetDescriptor& descriptor) {
  if (descriptor.source.empty()) return "";
  const std::string split = descriptor.split.empty() ? "train" : descriptor.split;
  const std::string configuration =
      descriptor.configuration.empty() ? "" : "'" + descriptor.configuration + "', ";
  return "; save split '" + split + "' of " + descriptor.source +
         " as JSON lines under that name, for example with python -c \"import datasets; "
         "datasets.load_dataset('" +
         descriptor.source + "', " + configuration + "split='" + split +
         "').to_json('OUT.jsonl')\"";
}

[[noreturn]] void fail_missing_copy(const fs::path& path, const DatasetDescriptor& descriptor) {
  fail(path.string(), ": the local copy ", descriptor.local_copy.string(), " is missing",
       advice_on(descriptor));
}

std::unique_ptr<Dataset> open_described(const fs::path& path, const DatasetOverrides& overrides) {
  DatasetDescriptor descriptor = read_descriptor(path, overrides);
  if (!is_there(descriptor.local_copy) && !is_pattern(descriptor.local_copy))
    fail_missing_copy(path, descriptor);
  return in_context(path.string(), [&] {
    return map_dataset(descriptor.local_copy, std::move(descriptor.mapping),
                       {.what = "a descriptor's local copy",
                        .max_record_bytes = overrides.records.max_bytes,
                        .delimiter = overrides.records.columns.delimiter});
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
          .takes_delimiter = true,
          .takes_local_copy = true};
}

}  // namespace kvcal
