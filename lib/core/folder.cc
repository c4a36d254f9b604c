#include "core/folder.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "core/safe_points.h"

namespace kvcal {
namespace {

fs::file_type type_in(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return fs::file_type::regular;
    case S_IFDIR:
      return fs::file_type::directory;
    case S_IFLNK:
      return fs::file_type::symlink;
    case S_IFBLK:
      return fs::file_type::block;
    case S_IFCHR:
      return fs::file_type::character;
    case S_IFIFO:
      return fs::file_type::fifo;
    case S_IFSOCK:
      return fs::file_type::socket;
    default:
      return fs::file_type::unknown;
  }
}

/// shown: path of name in folder, for messages.
std::optional<struct stat> status_at(int folder, const fs::path& name, const fs::path& shown,
                                     int flags) {
  struct stat status {};
  if (::fstatat(folder, name.c_str(), &status, flags) == 0) return status;
  const bool is_circular = errno == ELOOP && (flags & AT_SYMLINK_NOFOLLOW) == 0;
  if (errno == ENOENT || errno == ENOTDIR || is_circular) return std::nullopt;
  fail_errno(shown, "cannot find out what it is");
}

fs::file_type type_in(const std::optional<struct stat>& status) {
  return status ? type_in(status->st_mode) : fs::file_type::not_found;
}

/// A bind mount of a folder of the same disk has its device.
bool is_mounted(int folder, const char* name) noexcept {
  constexpr uint64_t kIsRoot = 0x2000;  // STATX_ATTR_MOUNT_ROOT of linux/stat.h, since Linux 5.8
  struct statx status {};
  return ::statx(folder, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &status) == 0 &&
         (status.stx_attributes & kIsRoot) != 0;
}

/// The names in a folder, one after the other.
class Listing {
 public:
  /// folder: its descriptor, which this closes.
  explicit Listing(int folder) noexcept : open_(::fdopendir(folder)) {
    if (!open_) ::close(folder);
  }
  ~Listing() {
    if (open_) ::closedir(open_);
  }
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;
  bool is_open() const { return open_ != nullptr; }
  /// nullptr at the end, and where the system cannot tell: then errno is not 0.
  const char* next() noexcept {
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(open_);
      if (!entry) return nullptr;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") return entry->d_name;
    }
  }

 private:
  DIR* open_;
};

constexpr std::string_view kCannotList = "cannot list the folder";

/// above: device of the folder that is removed; nullptr for that folder.
void remove_at(int folder, const char* name, const dev_t* above) noexcept {
  struct stat status {};
  if (::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if ((above && status.st_dev != *above) || is_mounted(folder, name)) return;
  if (!S_ISDIR(status.st_mode)) {
    ::unlinkat(folder, name, 0);
    return;
  }
  const int inner = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (inner >= 0) {
    Listing listing(inner);
    if (listing.is_open())
      while (const char* next = listing.next()) remove_at(inner, next, &status.st_dev);
  }
  ::unlinkat(folder, name, AT_REMOVEDIR);
}

}  // namespace

OpenFolder::OpenFolder(fs::path path, std::string_view what)
    : path_(std::move(path)), descriptor_(path_, O_PATH | O_DIRECTORY) {
  if (get() < 0) fail_errno(path_, what);
}

OpenFolder OpenFolder::inside(const std::string& name) const {
  Descriptor folder(name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, get());
  if (folder.get() < 0) fail_errno(*this / name, "cannot open the folder");
  return {*this / name, std::move(folder)};
}

std::vector<std::string> OpenFolder::names() const {
  const int listed = open_file(".", O_RDONLY | O_DIRECTORY, 0, get());
  if (listed < 0) fail_errno(path_, kCannotList);
  Listing listing(listed);
  if (!listing.is_open()) fail_errno(path_, kCannotList);
  std::vector<std::string> names;
  SafePoints points(1024);
  while (const char* name = listing.next()) {
    points.pass();
    names.emplace_back(name);
  }
  if (errno != 0) fail_errno(path_, kCannotList);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<struct stat> OpenFolder::status_of(const std::string& name) const {
  return status_at(get(), name, *this / name, AT_SYMLINK_NOFOLLOW);
}

fs::file_type OpenFolder::type_of(const std::string& name) const {
  return type_in(status_of(name));
}

bool OpenFolder::is_mount(const std::string& name) const {
  return is_mounted(get(), name.c_str());
}

std::optional<fs::path> OpenFolder::mount_inside() const {
  for (const std::string& name : names()) {
    if (is_mount(name)) return *this / name;
    if (type_of(name) != fs::file_type::directory) continue;
    if (auto mount = inside(name).mount_inside()) return mount;
  }
  return std::nullopt;
}

bool OpenFolder::make_folder(const std::string& name) const {
  return ::mkdirat(get(), name.c_str(), 0777) == 0;
}

bool OpenFolder::make_file(const std::string& name) const {
  return Descriptor(name, O_WRONLY | O_CREAT | O_EXCL, 0666, get()).get() >= 0;
}

bool OpenFolder::rename(const std::string& from, const std::string& to, unsigned flags) const {
  return ::renameat2(get(), from.c_str(), get(), to.c_str(), flags) == 0;
}

void OpenFolder::remove_tree(const std::string& name) const noexcept {
  remove_at(get(), name.c_str(), nullptr);
}

void OpenFolder::sync() const {
  const Descriptor folder(".", O_RDONLY | O_DIRECTORY, 0, get());
  if (folder.get() >= 0) retried([&] { return ::fsync(folder.get()); });
}

std::optional<OpenEntry> entry_at(const fs::path& path) {
  const fs::path place = without_slash(path);
  if (own_type_of(place) == fs::file_type::not_found) return std::nullopt;
  return OpenEntry{OpenFolder(place.has_parent_path() ? place.parent_path() : fs::path(".")),
                   place.has_filename() ? place.filename().string() : "."};
}

std::vector<fs::path> paths_in(const fs::path& folder) {
  const std::vector<std::string> names = OpenFolder(folder, kCannotList).names();
  std::vector<fs::path> paths;
  for (const std::string& name : names) paths.push_back(folder / name);
  return paths;
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_code(folder, "cannot create folder", error);
}

fs::file_type type_of(const fs::path& path) {
  return type_in(status_at(AT_FDCWD, path, path, 0));
}

fs::file_type own_type_of(const fs::path& path) {
  return type_in(status_at(AT_FDCWD, path, path, AT_SYMLINK_NOFOLLOW));
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

void remove_tree(const fs::path& path) noexcept {
  remove_at(AT_FDCWD, path.c_str(), nullptr);
}

}  // namespace kvcal
