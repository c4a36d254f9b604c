#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/hub_id.h"

namespace kvcal {

namespace fs = std::filesystem;

/// The hub's cache on this machine, as huggingface_hub 2.4 lays it out:
///   models--OWNER--NAME/blobs/ETAG               files, named by SHA-256 (LFS) or git's SHA-1
///   models--OWNER--NAME/snapshots/COMMIT/FILE    relative links to them
///   models--OWNER--NAME/refs/REVISION            the commit of a branch or tag
///   .locks/models--OWNER--NAME/ETAG.lock         held while a file is downloaded
/// Data sets likewise, as datasets--OWNER--NAME. This class only reads.
class HubCache {
 public:
  explicit HubCache(fs::path root) : root_(std::move(root)) {}

  const fs::path& root() const { return root_; }
  fs::path folder(const HubId& id) const;
  fs::path blob(const HubId& id, const std::string& etag) const;
  fs::path lock(const HubId& id, const std::string& etag) const;
  fs::path ref(const HubId& id) const;
  fs::path snapshot(const HubId& id, const std::string& commit) const;
  /// The commit of id's revision; nullopt where the cache does not know it. Throws Error for a ref
  /// that holds something else.
  std::optional<std::string> commit(const HubId& id) const;
  /// snapshot of commit(id), where there is such a folder.
  std::optional<fs::path> snapshot(const HubId& id) const;

 private:
  fs::path root_;
};

/// Relative names of the files below a snapshot that can be read, sorted. Links without their file
/// count as absent.
std::vector<std::string> files_of_snapshot(const fs::path& snapshot);

/// "owner/name@COMMIT", and the path in it, for a file or folder in a snapshot of a hub cache;
/// otherwise path as it is. By this name manifests and reports say where something came from: it
/// is the same on every machine.
std::string name_of_source(const fs::path& path);

}  // namespace kvcal
