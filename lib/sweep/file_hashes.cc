#include "sweep/file_hashes.h"

#include <sys/stat.h>

#include "core/sha256.h"

namespace kvcal {
namespace {

/// Name, size and time of change of each file.
std::string stamp_of(const std::vector<fs::path>& files) {
  std::string text;
  for (const fs::path& file : files) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) fail_errno(file, "cannot read");
    text += file.filename().string() + " " + std::to_string(status.st_size) + " " +
            std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) +
            "\n";
  }
  return sha256_hex(text);
}

}  // namespace

FileHashes::FileHashes(const SweepFolder& folder) : folder_(folder) {
  if (auto known = folder.read_piece(folder.hashes())) known_ = std::move(*known);
}

std::string FileHashes::hash(const std::string& kind, const fs::path& path,
                             const std::vector<fs::path>& files,
                             const std::function<std::string()>& compute) {
  const std::string stamp = stamp_of(files), key = kind + ":" + fs::absolute(path).string();
  if (const Json* entry = find_field(known_, key);
      entry && entry->is_object() && optional_string(*entry, "stamp") == stamp)
    if (const auto known = optional_string(*entry, "sha256")) return *known;
  std::string sha256 = compute();
  known_[key] = {{"stamp", stamp}, {"sha256", sha256}};
  if (folder_.may_write()) folder_.write_piece(folder_.hashes(), known_);
  return sha256;
}

std::string FileHashes::hash(const std::string& kind, const fs::path& path,
                             const std::vector<fs::path>& files) {
  return hash(kind, path, files, [&] {
    std::string text;
    for (const fs::path& file : files)
      text += file.filename().string() + " " + sha256_of_file(file) + "\n";
    return sha256_hex(text);
  });
}

}  // namespace kvcal
