#include "checkpoint/links.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "checkpoint/model_dir.h"
#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/posix_file.h"

namespace kvcal {
namespace {

constexpr const char* kAllowAll = "KVCAL_FOLLOW_LINKS";

bool allows_all() {
  const char* value = std::getenv(kAllowAll);
  return value && std::string_view(value) == "1";
}

/// Folder of a hub cache for the files of a snapshot, or an empty path.
fs::path blobs_of(const fs::path& folder) {
  std::error_code error;
  const fs::path snapshot = fs::canonical(folder, error);
  if (error || snapshot.parent_path().filename() != "snapshots") return {};
  return snapshot.parent_path().parent_path() / "blobs";
}

void check_link(const fs::path& link, const fs::path& folder, const fs::path& blobs) {
  if (!is_there(link)) return;  // leads nowhere; who needs it says so
  std::error_code error;
  const fs::path place = fs::canonical(link, error);
  if (error) fail_code(link, "cannot find out where it leads", error);
  if (lies_in(place, folder) || (!blobs.empty() && lies_in(place, blobs))) return;
  fail(link.string(), ": is a symbolic link to ", place.string(),
       ", outside of the checkpoint, expected a file in it; if you trust it, set ", kAllowAll,
       "=1, or make a copy with 'cp -rL'");
}

void check_entries(const fs::path& inner, const fs::path& folder, const fs::path& blobs) {
  if (!is_folder(inner)) return;
  for (const fs::path& path : paths_in(inner)) {
    const std::string name = path.filename().string();
    if (name.starts_with('.')) continue;
    std::error_code error;
    const bool is_link = fs::is_symlink(path, error);
    if (error) fail_code(path, "cannot find out what it is", error);
    if (is_link && (name == kTemplateFolder || !is_folder(path))) check_link(path, folder, blobs);
  }
}

}  // namespace

void check_links(const fs::path& folder) {
  if (allows_all()) return;
  const fs::path blobs = blobs_of(folder);
  check_entries(folder, folder, blobs);
  check_entries(folder / kTemplateFolder, folder, blobs);
}

}  // namespace kvcal
