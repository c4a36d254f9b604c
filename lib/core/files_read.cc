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

/// Process-wide, as the command line is.
struct FilesRead {
  static inline std::mutex mutex;
  static inline std::optional<std::map<FileIdentity, std::string>>
      names;  ///< nullopt: nobody asked

  static std::optional<std::string> name_of(const struct stat& status) {
    const std::lock_guard lock(mutex);
    if (!names) return std::nullopt;
    const auto known = names->find(identity_of(status));
    return known == names->end() ? std::nullopt : std::optional(known->second);
  }
};

/// what: "is" the place, or "holds" it.
void check(const OpenFolder& folder, const std::string& name, const fs::path& place,
           std::string_view what) {
  const auto status = folder.status_of(name);
  if (!status) return;
  if (const auto read = FilesRead::name_of(*status))
    fail(place.string(), ": ", what, " ", *read, ", which is read; name another output");
  if (!S_ISDIR(status->st_mode)) return;
  const OpenFolder inside = folder.inside(name);
  for (const std::string& below : inside.names()) check(inside, below, place, "holds");
}

bool has_read() {
  const std::lock_guard lock(FilesRead::mutex);
  return FilesRead::names && !FilesRead::names->empty();
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
  if (FilesRead::names) FilesRead::names->emplace(identity_of(status), file.string());
}

void check_not_read(const OpenFolder& folder, const std::string& name) {
  if (has_read()) check(folder, name, folder / name, "is");
}

void check_not_read(const fs::path& place) {
  if (const auto entry = entry_at(place)) check_not_read(entry->folder, entry->name);
}

}  // namespace kvcal
