#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/registry.h"
#include "datasets/dataset.h"
#include "datasets/record_mapping.h"
#include "datasets/record_source.h"

namespace kvcal {

/// One kind of data set: how it is recognized, and what opens it. readers/<name>.cc defines it.
struct DatasetReader {
  /// nullptr where its records are no JSON objects.
  std::unique_ptr<RecordSource> (*open_records)(const fs::path& path,
                                                const RecordRequest& request) = nullptr;
  /// nullptr: the records of open_records, by their usual keys.
  std::unique_ptr<Dataset> (*open)(const fs::path& path,
                                   const DatasetOverrides& overrides) = nullptr;

  /// Recognizes a folder, a pattern or a name before any file is opened; nullptr: never.
  bool (*reads_path)(const fs::path& path) = nullptr;
  /// The files that a path stands for, in the order they are read; nullptr: the path itself.
  std::vector<fs::path> (*files)(const fs::path& path) = nullptr;
  std::vector<std::string_view> first_bytes = {};  ///< files that begin so are its, always
  std::vector<std::string_view> extensions = {};   ///< of its files, packing taken off
  /// Files with its extension are its, whatever they hold.
  bool trusts_extension = true;
  /// Recognizes the beginning of a text that no other rule has recognized; nullptr: never.
  bool (*reads_text)(std::string_view text, bool has_extension) = nullptr;

  bool is_table = false;  ///< which cannot be read packed
  bool takes_split = false;
  bool takes_local_copy = false;  ///< its path describes a data set whose records lie elsewhere
};

/// The records of path's objects by a mapping that does not come from their usual keys; the
/// request's fields do not count.
std::unique_ptr<Dataset> map_dataset(const fs::path& path, RecordMapping mapping,
                                     const RecordRequest& request);

/// Every reader by the name of its file in lib/datasets/readers/, in the order in which they are
/// asked whether they recognize a path.
const Registry<DatasetReader>& dataset_readers();

/// Throws Error for a record of that many bytes where they are more than the limit; what: "the
/// line".
void check_record_size(std::string_view what, uint64_t bytes, size_t most);

/// Characters around values of JSON.
inline constexpr std::string_view kJsonBlank = " \t\r\n";

/// Name of the reader for path: by what it is (a folder, a pattern, a table), by extension, else by
/// content.
std::string_view reader_for(const fs::path& path);

}  // namespace kvcal
