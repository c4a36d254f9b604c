#pragma once

#include <filesystem>
#include <vector>

namespace kvcal {

/// The paths of a folder's entries, sorted. Throws Error naming the folder and the system's reason.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder);

/// Makes a folder and those it lies in; what is there already is fine. Throws Error as paths_in.
void make_folders(const std::filesystem::path& folder);

/// Whether path is there, links followed. Throws Error where the system cannot tell: a disk that
/// fails is not one without the file.
bool is_there(const std::filesystem::path& path);

}  // namespace kvcal
