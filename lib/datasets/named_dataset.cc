#include "datasets/named_dataset.h"

#include "core/folder.h"

namespace kvcal {

std::optional<EmbeddedText> named_dataset(const std::filesystem::path& path) {
  if (path.has_parent_path()) return std::nullopt;
  for (const EmbeddedText& file : builtin_datasets())
    if (file.stem() == path.native() && !is_there(path)) return file;
  return std::nullopt;
}

std::optional<EmbeddedText> named_dataset(const std::filesystem::path& path,
                                          std::string_view extension) {
  const auto named = named_dataset(path);
  return named && named->name.ends_with(extension) ? named : std::nullopt;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const EmbeddedText& file : builtin_datasets()) names.emplace_back(file.stem());
  return names;
}

std::filesystem::path dataset_seen_from(const std::filesystem::path& folder,
                                        const std::string& given) {
  const std::filesystem::path path = (folder / given).lexically_normal();
  return !is_there(path) && named_dataset(given) ? std::filesystem::path(given) : path;
}

}  // namespace kvcal
