#include "core/files_read.h"

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/folder.h"

namespace kvcal {
namespace {

namespace fs = std::filesystem;
using Identity = std::pair<dev_t, ino_t>;

/// Process-wide, as the command line is.
struct FilesRead {
  static inline std::mutex mutex;
  static inline std::optional<std::map<Identity, std::string>> names;  ///< nullopt: nobody asked

  static std::optional<std::string> name_of(const fs::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
    const std::lock_guard lock(mutex);
    if (!names) return std::nullopt;
    const auto known = names->find({status.st_dev, status.st_ino});
    return known == names->end() ? std::nullopt : std::optional(known->second);
  }
};

void check(const fs::path& path, const fs::path& place) {
  if (const auto name = FilesRead::name_of(path)) {
    if (path == place) fail(place.string(), ": is ", *name, ", which is read; name another output");
    fail(place.string(), ": holds ", *name, ", which is read; name another output");
  }
  if (own_type_of(path) != fs::file_type::directory) return;
  for (const fs::path& inside : paths_in(path)) check(inside, place);
}

}  // namespace

void remember_files_read() {
  const std::lock_guard lock(FilesRead::mutex);
  FilesRead::names.emplace();
}

void forget_files_read() {
  const std::lock_guard lock(FilesRead::mutex);
  FilesRead::names.reset();
}

void note_file_read(const fs::path& file, const struct stat& status) {
  const std::lock_guard lock(FilesRead::mutex);
  if (FilesRead::names)
    FilesRead::names->emplace(Identity{status.st_dev, status.st_ino}, file.string());
}

void check_not_read(const fs::path& place) {
  {
    const std::lock_guard lock(FilesRead::mutex);
    if (!FilesRead::names || FilesRead::names->empty()) return;
  }
  check(place, place);
}

}  // namespace kvcal
