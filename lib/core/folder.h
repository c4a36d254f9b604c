#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace kvcal {

/// Sorted paths of a folder's entries. Throws Error naming the folder and the system's reason.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder);

/// Makes a folder and its parents; existing ones are fine. Throws Error as paths_in does.
void make_folders(const std::filesystem::path& folder);

/// Removes a file, or a folder with all that is in it, as far as the system lets it: follows no
/// link, and stays on path's device, so that what is mounted below it stays.
void remove_tree(const std::filesystem::path& path) noexcept;

/// Type of path, following links; not_found for a link that is broken or circular. Throws Error
/// where the system cannot tell: on a failing disk the file may exist.
std::filesystem::file_type type_of(const std::filesystem::path& path);
/// The same of the name itself: a link's is symlink, wherever it leads.
std::filesystem::file_type own_type_of(const std::filesystem::path& path);
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// Folder for temporary files: $TMPDIR, $TMP, $TEMP or $TEMPDIR, else /tmp. Throws Error naming it
/// where it cannot be used.
std::filesystem::path temporary_folder();
/// A path in it that nothing else of this process gets, "kvcal-KIND-PID-N".
std::filesystem::path temporary_path(std::string_view kind);

}  // namespace kvcal
