#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// Files that are one data set, in the order in which their records are counted.
struct FileSet {
  std::filesystem::path folder;  ///< their names are seen from here
  std::vector<std::filesystem::path> files;

  /// One file: its own SHA-256. Several: SHA-256 over "<name>\0<SHA-256>\n" of each in their order.
  std::string sha256() const;
};

/// Whether path is a pattern of file names (`data/*.jsonl`) and no file of that name is there.
bool is_pattern(const std::filesystem::path& path);
/// Whether path is such a pattern, and files match it.
bool has_files(const std::filesystem::path& path);
/// Whether a folder is what `Dataset.save_to_disk` or `DatasetDict.save_to_disk` writes.
bool is_saved_dataset(const std::filesystem::path& folder);

/// The data files of a folder or a pattern, sorted by name byte by byte. Hidden files and what goes
/// with data sets (README, LICENSE) are left out. Of a folder with files of several splits
/// ("train-00000-of-00002.parquet", "test.jsonl") those of split. Throws Error naming a file that
/// is of no known kind, a folder that a pattern matches or that lies among the files, a missing
/// shard, splits among which none was chosen, and where there is nothing.
FileSet find_data_files(const std::filesystem::path& path, const std::optional<std::string>& split);

/// The files of a saved data set; of one with splits, those of split, or of the only one. Throws
/// Error naming what is missing or not understood.
FileSet find_saved_files(const std::filesystem::path& folder,
                         const std::optional<std::string>& split);

}  // namespace kvcal
