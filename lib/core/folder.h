#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/posix_file.h"

namespace kvcal {

/// A folder that is open. What is done to a name in it is done in this folder, wherever its path,
/// or a link on the way there, leads by then. No name in it is followed where it is a link.
class OpenFolder {
 public:
  /// Throws Error, with the path and what failed, where there is no folder.
  explicit OpenFolder(fs::path path, std::string_view what = "cannot open the folder");
  /// The folder of this name in it. Throws Error.
  OpenFolder inside(const std::string& name) const;

  int get() const { return descriptor_.get(); }
  const fs::path& path() const { return path_; }
  /// Path of a name in it, for messages and for those who write by paths.
  fs::path operator/(const std::string& name) const { return path_ / name; }

  /// Sorted names of its entries. Throws Error.
  std::vector<std::string> names() const;
  /// What has this name; nullopt: nothing. Throws Error where the system cannot tell.
  std::optional<struct stat> status_of(const std::string& name) const;
  std::filesystem::file_type type_of(const std::string& name) const;
  bool has(const std::string& name) const { return status_of(name).has_value(); }
  /// Whether something is mounted at this name. An old system does not tell, and has not.
  bool is_mount(const std::string& name) const;
  /// A path below at which something is mounted. Throws Error.
  std::optional<fs::path> mount_inside() const;

  /// Whether it has made a folder or a file; else errno says why not.
  bool make_folder(const std::string& name) const;
  bool make_file(const std::string& name) const;
  /// Whether it has renamed; flags: as renameat2 has them.
  bool rename(const std::string& from, const std::string& to, unsigned flags = 0) const;
  /// As the function of this name does.
  void remove_tree(const std::string& name) const noexcept;
  /// Flushes its names to disk; ignored where the file system cannot.
  void sync() const;

 private:
  OpenFolder(fs::path path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  fs::path path_;
  Descriptor descriptor_;
};

/// path without a slash at its end, which would make a link what it leads to.
inline fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

/// A name in a folder that is open.
struct OpenEntry {
  OpenFolder folder;
  std::string name;
};
/// The entry of a path, no link; nullopt where nothing is there. A slash at the end changes
/// nothing. Throws Error where the system cannot tell.
std::optional<OpenEntry> entry_at(const fs::path& path);

/// Sorted paths of a folder's entries. Throws Error naming the folder and the system's reason.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder);

/// Makes a folder and its parents; existing ones are fine. Throws Error as paths_in does.
void make_folders(const std::filesystem::path& folder);

/// Removes a file, or a folder with all that is in it, as far as the system lets it: follows no
/// link, and enters nothing that is mounted at path or below it.
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
