#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kvcal {

/// A file or folder that a command writes beside its result.
struct OutputFile {
  std::string option;  ///< name of the option that gives it
  std::string path;    ///< empty: not requested
};

/// Checks outputs before the work, so that nothing is lost at its end. Throws Error naming option
/// and path where an output exists and may not be replaced, has no parent folder, equals, contains
/// or lies in an input, or equals another output. inputs: files and folders; empty ones are
/// ignored.
void check_output_files(const std::vector<OutputFile>& outputs, bool overwrite,
                        const std::vector<std::string>& inputs);

/// path, or the nearest folder above it that is there; the current one for an empty path.
std::filesystem::path existing_folder_of(const std::filesystem::path& path);
/// Bytes that this process may still write there; nullopt where the system does not tell.
std::optional<uint64_t> free_bytes_at(const std::filesystem::path& folder);

}  // namespace kvcal
