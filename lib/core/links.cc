#include "core/links.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/posix_file.h"

namespace kvcal {
namespace {

constexpr const char* kAllowAll = "KVCAL_FOLLOW_LINKS";

/// Folders of a hub cache for the files of the snapshot that folder is or lies in: the
/// repository's, and the one that all repositories share, which huggingface_hub 2.4 marks.
std::vector<fs::path> blobs_of(const fs::path& folder) {
  std::error_code error;
  fs::path snapshot = fs::canonical(folder, error);
  if (error) return {};
  while (snapshot.has_relative_path() && snapshot.parent_path().filename() != "snapshots")
    snapshot = snapshot.parent_path();
  if (!snapshot.has_relative_path()) return {};
  const fs::path repository = snapshot.parent_path().parent_path();
  const fs::path shared = repository.parent_path() / "blobs";
  std::vector<fs::path> blobs{repository / "blobs"};
  if (is_there(shared / ".huggingface-shared-blobs")) blobs.push_back(shared);
  return blobs;
}

}  // namespace

AllowedLinks::AllowedLinks(const fs::path& folder, std::string kind) : kind_(std::move(kind)) {
  if (const char* value = std::getenv(kAllowAll); value && std::string_view(value) == "1") return;
  places_ = blobs_of(folder);
  places_.push_back(folder.empty() ? "." : folder);
  for (fs::path& place : places_) place = resolved(place);
}

void AllowedLinks::check(const fs::path& path) const {
  if (places_.empty() || !is_there(path)) return;
  std::error_code error;
  const fs::path place = fs::canonical(path, error);
  if (error) fail_code(path, "cannot find out where it leads", error);
  const auto holds_it = [&](const fs::path& one) {
    return std::ranges::mismatch(one, place).in1 == one.end();
  };
  if (std::ranges::any_of(places_, holds_it)) return;
  const bool is_link = own_type_of(path) == fs::file_type::symlink;
  fail(path.string(), is_link ? ": is a symbolic link to " : ": leads to ", place.string(),
       ", outside of the ", kind_, ", expected a file in it; if you trust it, set ", kAllowAll,
       "=1, or make a copy with 'cp -rL'");
}

}  // namespace kvcal
