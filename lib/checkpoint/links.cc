#include "checkpoint/links.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

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

/// Folders of a hub cache for the files of a snapshot: the repository's, and the one that all
/// repositories share, which huggingface_hub 2.4 marks.
std::vector<fs::path> blobs_of(const fs::path& folder) {
  std::error_code error;
  const fs::path snapshot = fs::canonical(folder, error);
  if (error || snapshot.parent_path().filename() != "snapshots") return {};
  const fs::path repository = snapshot.parent_path().parent_path();
  const fs::path shared = repository.parent_path() / "blobs";
  std::vector<fs::path> blobs{repository / "blobs"};
  if (is_there(shared / ".huggingface-shared-blobs")) blobs.push_back(shared);
  return blobs;
}

void check_link(const fs::path& link, const fs::path& folder, const std::vector<fs::path>& blobs) {
  if (!is_there(link)) return;  // leads nowhere; who needs it says so
  std::error_code error;
  const fs::path place = fs::canonical(link, error);
  if (error) fail_code(link, "cannot find out where it leads", error);
  const auto holds_it = [&](const fs::path& one) { return lies_in(place, one); };
  if (holds_it(folder) || std::ranges::any_of(blobs, holds_it)) return;
  fail(link.string(), ": is a symbolic link to ", place.string(),
       ", outside of the checkpoint, expected a file in it; if you trust it, set ", kAllowAll,
       "=1, or make a copy with 'cp -rL'");
}

void check_entries(const fs::path& inner, const fs::path& folder,
                   const std::vector<fs::path>& blobs) {
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
  const std::vector<fs::path> blobs = blobs_of(folder);
  check_entries(folder, folder, blobs);
  check_entries(folder / kTemplateFolder, folder, blobs);
}

}  // namespace kvcal
