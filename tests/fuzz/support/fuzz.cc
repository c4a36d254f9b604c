#include "support/fuzz.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "core/file.h"

namespace kvcal::fuzz {

Folder::Folder() {
  const fs::path memory = "/dev/shm";
  const fs::path parent = fs::is_directory(memory) ? memory : fs::temp_directory_path();
  path_ = parent / ("kvcal_fuzz_" + std::to_string(getpid()));
  fs::create_directories(path_);
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path Folder::write(const std::string& name, std::string_view content) const {
  const fs::path path = path_ / name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  KVCAL_CHECK(file.good());
  return path;
}

std::string fixture(const std::string& name) {
  return read_text(fs::path(KVCAL_TESTS_DIR) / "fixtures" / name);
}

std::vector<std::string_view> parts_of(std::string_view text, size_t count) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(kBetweenParts); end != std::string_view::npos;
       end = text.find(kBetweenParts)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + kBetweenParts.size());
  }
  parts.push_back(text);
  parts.resize(std::max(parts.size(), count));
  return parts;
}

}  // namespace kvcal::fuzz
