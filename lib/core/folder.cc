#include "core/folder.h"

#include <algorithm>

#include "core/error.h"

namespace kvcal {

namespace fs = std::filesystem;

std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    paths.push_back(it->path());
  if (error) fail(folder.string(), ": cannot list the folder: ", error.message());
  std::ranges::sort(paths);
  return paths;
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder.string(), ": cannot create folder: ", error.message());
}

bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    fail(path.string(), ": cannot find out whether it is there: ", error.message());
  return fs::exists(status);
}

}  // namespace kvcal
