#include "core/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/posix_file.h"
#include "core/safe_points.h"

namespace kvcal {
namespace {

/// Type in the status that the system gave for path; error: the reason why it gave none.
fs::file_type told_type(const fs::path& path, fs::file_status status, std::error_code error) {
  const fs::file_type type = status.type();
  const bool is_absent = type == fs::file_type::not_found || error == std::errc::not_a_directory;
  if (error && !is_absent) fail_code(path, "cannot find out what it is", error);
  return is_absent ? fs::file_type::not_found : type;
}

}  // namespace

std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  SafePoints points(1024);
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    points.pass();
    paths.push_back(it->path());
  }
  if (error) fail_code(folder, "cannot list the folder", error);
  std::ranges::sort(
      paths, {}, [](const fs::path& path) -> auto& { return path.native(); });
  return paths;
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_code(folder, "cannot create folder", error);
}

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error == std::errc::too_many_symbolic_link_levels) return fs::file_type::not_found;
  return told_type(path, status, error);
}

fs::file_type own_type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  return told_type(path, status, error);
}

bool is_there(const fs::path& path) {
  return type_of(path) != fs::file_type::not_found;
}

bool is_folder(const fs::path& path) {
  return type_of(path) == fs::file_type::directory;
}

fs::path temporary_folder() {
  fs::path folder = "/tmp";
  for (const char* name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})
    if (const char* value = std::getenv(name); value && *value) {
      folder = value;
      break;
    }
  // std::filesystem::temp_directory_path gives no name where it fails
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  constexpr std::string_view kUse = "cannot be the folder for temporary files";
  if (error) fail_code(folder, kUse, error);
  if (!fs::is_directory(status)) fail(folder.string(), ": ", kUse, ": is no folder");
  return folder;
}

fs::path temporary_path(std::string_view kind) {
  static std::atomic<int> count = 0;
  return temporary_folder() / ("kvcal-" + std::string(kind) + "-" + std::to_string(::getpid()) +
                               "-" + std::to_string(++count));
}

namespace {

/// Removes what a folder holds. folder: its descriptor, which this closes.
void empty_folder(int folder, dev_t device) noexcept {
  DIR* const listing = ::fdopendir(folder);
  if (!listing) {
    ::close(folder);
    return;
  }
  while (const dirent* entry = ::readdir(listing)) {
    const char* const name = entry->d_name;
    struct stat status {};
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0 ||
        ::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || status.st_dev != device)
      continue;
    if (!S_ISDIR(status.st_mode)) {
      ::unlinkat(folder, name, 0);
      continue;
    }
    const int inner = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner >= 0) empty_folder(inner, device);
    ::unlinkat(folder, name, AT_REMOVEDIR);
  }
  ::closedir(listing);
}

}  // namespace

void remove_tree(const fs::path& path) noexcept {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISDIR(status.st_mode)) {
    ::unlink(path.c_str());
    return;
  }
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder >= 0) empty_folder(folder, status.st_dev);
  ::rmdir(path.c_str());
}

}  // namespace kvcal
