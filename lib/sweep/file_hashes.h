#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sweep/sweep_folder.h"

namespace kvcal {

/// Hashes of models, data sets and scales. They are kept in the sweep's folder together with the
/// size and time of change of each file, so that files which have not changed are hashed once.
class FileHashes {
 public:
  explicit FileHashes(const SweepFolder& folder);

  /// The hash that compute returns, or returned for the same files. kind: "model", "files", ...; a
  /// path may have a hash of each kind.
  std::string hash(const std::string& kind, const fs::path& path,
                   const std::vector<fs::path>& files, const std::function<std::string()>& compute);
  /// The hash of the names and contents of files.
  std::string hash(const std::string& kind, const fs::path& path,
                   const std::vector<fs::path>& files);

 private:
  const SweepFolder& folder_;
  Json known_ = Json::object();
};

}  // namespace kvcal
