#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/record_mapping.h"

namespace kvcal {

/// A known data set and its local copy. The grammar is in datasets/README.md, "Descriptors".
struct DatasetDescriptor {
  std::string name, source, licence;
  std::string configuration;  ///< empty where the data set has only one
  std::vector<std::string> splits;
  std::string split;                 ///< the one that is read
  std::filesystem::path local_copy;  ///< absolute or relative to the working folder
  /// Patterns of files in the hub's repository `source`: first those of the split, then others that
  /// are fetched with them. Empty: none are known.
  std::vector<std::string> hub_files;
  RecordMapping mapping;
};

/// Reads a descriptor, a file or a name (datasets/named_dataset.h); overrides stand in for its
/// split and local copy. The copy of a name is that of the hub's cache, where none lies in the
/// working folder and the cache has it. Throws Error with file and line for an unknown, repeated or
/// missing key and a value of the wrong kind.
DatasetDescriptor read_descriptor(const std::filesystem::path& path,
                                  const DatasetOverrides& overrides);

}  // namespace kvcal
