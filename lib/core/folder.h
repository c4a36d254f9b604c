#pragma once

#include <filesystem>
#include <vector>

namespace kvcal {

/// The paths of a folder's entries, sorted. Throws Error naming the folder and the system's reason.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder);

/// Makes a folder and those it lies in; what is there already is fine. Throws Error as paths_in.
void make_folders(const std::filesystem::path& folder);

/// The type of path, links followed; not_found for one that leads nowhere or in a circle. Throws
/// Error where the system cannot tell: a disk that fails is not one without the file.
std::filesystem::file_type type_of(const std::filesystem::path& path);
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// The folder for temporary files, as $TMPDIR, $TMP, $TEMP or $TEMPDIR names it, else /tmp. Throws
/// Error naming it where it cannot be used.
std::filesystem::path temporary_folder();

}  // namespace kvcal
