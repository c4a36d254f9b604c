#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/replaceable.h"

namespace kvcal {

/// A file or folder that a command writes beside its result.
struct OutputFile {
  std::string option;  ///< name of the option that gives it
  std::string path;    ///< empty: not requested
  OutputKind kind = OutputKind::kFile;
};

/// Throws Error where an output equals, contains or lies in something that the command reads:
/// files and folders, of which empty and absent ones are ignored.
void check_keeps_inputs(const std::string& output, const std::vector<std::string>& inputs);

/// Throws Error where one of the paths equals, contains or lies in another.
void check_are_apart(const std::vector<OutputFile>& outputs);

/// Checks outputs before the work, so that nothing is lost at its end. Throws Error naming option
/// and path where an output exists and may not be replaced (core/replaceable.h), has no parent
/// folder, does not keep the inputs, or equals, contains or lies in another output.
void check_output_files(const std::vector<OutputFile>& outputs, bool overwrite,
                        const std::vector<std::string>& inputs);

/// path, or the nearest folder above it that is there; the current one for an empty path.
std::filesystem::path existing_folder_of(const std::filesystem::path& path);
/// Bytes that this process may still write there; nullopt where the system does not tell.
std::optional<uint64_t> free_bytes_at(const std::filesystem::path& folder);

}  // namespace kvcal
