#include "hub/hub_cache.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"

namespace kvcal {
namespace {

constexpr std::string_view kModels = "models--", kDatasets = "datasets--", kSeparator = "--";

std::string folder_name(const HubId& id) {
  const size_t slash = id.name.find('/');
  return std::string(id.repo == HubRepo::kModel ? kModels : kDatasets) + id.name.substr(0, slash) +
         std::string(kSeparator) + id.name.substr(slash + 1);
}

/// "owner/name", or "name" of an old repository without an owner; empty for another folder.
std::string name_of_folder(std::string_view folder) {
  for (const std::string_view kind : {kModels, kDatasets}) {
    if (!folder.starts_with(kind)) continue;
    folder.remove_prefix(kind.size());
    const size_t at = folder.find(kSeparator);
    if (at == folder.npos) return std::string(folder);
    return std::string(folder.substr(0, at)) + "/" +
           std::string(folder.substr(at + kSeparator.size()));
  }
  return {};
}

}  // namespace

fs::path HubCache::folder(const HubId& id) const {
  return root_ / folder_name(id);
}

fs::path HubCache::blob(const HubId& id, const std::string& etag) const {
  return folder(id) / "blobs" / etag;
}

fs::path HubCache::lock(const HubId& id, const std::string& etag) const {
  return root_ / ".locks" / folder_name(id) / (etag + ".lock");
}

fs::path HubCache::ref(const HubId& id) const {
  return folder(id) / "refs" / id.revision;
}

fs::path HubCache::snapshot(const HubId& id, const std::string& commit) const {
  return folder(id) / "snapshots" / commit;
}

std::optional<std::string> HubCache::commit(const HubId& id) const {
  if (id.is_commit()) return id.revision;
  const fs::path file = ref(id);
  if (type_of(file) != fs::file_type::regular) return std::nullopt;
  std::string commit = read_text(file, 4096);
  while (commit.ends_with('\n') || commit.ends_with('\r')) commit.pop_back();
  if (!is_commit_hash(commit))
    fail(file.string(), ": holds '", commit, "', expected the hash of a commit; remove the file");
  return commit;
}

std::optional<fs::path> HubCache::snapshot(const HubId& id) const {
  const auto known = commit(id);
  if (!known) return std::nullopt;
  const fs::path path = snapshot(id, *known);
  return is_folder(path) ? std::optional(path) : std::nullopt;
}

std::vector<std::string> files_of_snapshot(const fs::path& snapshot) {
  std::vector<std::string> names;
  std::vector<fs::path> folders{snapshot};
  while (!folders.empty()) {
    const fs::path folder = std::move(folders.back());
    folders.pop_back();
    for (const fs::path& path : paths_in(folder)) {
      if (own_type_of(path) == fs::file_type::directory)
        folders.push_back(path);
      else if (type_of(path) == fs::file_type::regular)
        names.push_back(path.lexically_relative(snapshot).generic_string());
    }
  }
  std::ranges::sort(names);
  return names;
}

std::string name_of_source(const fs::path& path) {
  // …/models--OWNER--NAME/snapshots/COMMIT/…
  const std::vector<fs::path> parts(path.begin(), path.end());
  for (size_t i = 0; i + 2 < parts.size(); ++i) {
    const std::string name = name_of_folder(parts[i].string()), commit = parts[i + 2].string();
    if (name.empty() || parts[i + 1] != "snapshots" || !is_commit_hash(commit)) continue;
    std::string text = name + "@" + commit;
    for (size_t j = i + 3; j < parts.size(); ++j)
      if (!parts[j].empty()) text += "/" + parts[j].string();
    return text;
  }
  return path.string();
}

}  // namespace kvcal
