#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kvcal {

/// Where symbolic links in a stranger's folder may lead: into the folder, and from a snapshot of a
/// hub cache into its blobs. Any other could have a file of the user read into an output. The
/// environment variable KVCAL_FOLLOW_LINKS=1 allows all.
class AllowedLinks {
 public:
  /// kind: of folder, for messages ("checkpoint").
  AllowedLinks(const std::filesystem::path& folder, std::string kind);
  /// Throws Error where path, in the folder, leads elsewhere by a link of its own or of a folder on
  /// the way. One that leads nowhere is no error here.
  void check(const std::filesystem::path& path) const;

 private:
  std::string kind_;
  std::vector<std::filesystem::path> places_;  ///< empty: all are allowed
};

}  // namespace kvcal
