#include "hub/snapshot_links.h"

#include <unistd.h>

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/posix_file.h"

namespace kvcal {
namespace {

void link_file(const fs::path& blob, const fs::path& target) {
  if (is_there(target)) return;  // a link to its blob, which cannot change
  make_folders(target.parent_path());
  // No other process uses this name.
  const fs::path scratch = target.string() + "." + std::to_string(::getpid()) + ".tmp";
  std::error_code error;
  fs::remove(scratch, error);
  fs::create_symlink(blob.lexically_relative(target.parent_path()), scratch, error);
  if (error) kvcal::copy_file(blob, scratch);
  fs::rename(scratch, target, error);
  if (error) {
    fs::remove(scratch);
    fail_code(target, "cannot create", error);
  }
}

void write_text(const fs::path& target, std::string_view text) {
  make_folders(target.parent_path());
  write_file_atomically(target, text, /*overwrite=*/true);
}

}  // namespace

void link_snapshot(const HubCache& cache, const HubId& id, const std::string& commit,
                   std::span<const HubFile> files) {
  const fs::path snapshot = cache.snapshot(id, commit);
  std::vector<HubFile> ordered(files.begin(), files.end());
  std::stable_partition(ordered.begin(), ordered.end(),
                        [](const HubFile& file) { return file.name != "config.json"; });
  for (const HubFile& file : ordered) link_file(cache.blob(id, file.etag), snapshot / file.name);
  if (id.is_commit() || cache.commit(id) == commit) return;
  write_text(cache.ref(id), commit);
}

void mark_cache(const HubCache& cache) {
  const fs::path tag = cache.root() / "CACHEDIR.TAG";
  if (!is_there(tag))
    write_text(tag,
               "Signature: 8a477f597d28d172789f06886806bc55\n"
               "# This folder is a cache of files of the Hugging Face hub.\n");
}

}  // namespace kvcal
