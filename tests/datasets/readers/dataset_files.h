#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/error.h"
#include "support/catch.h"
#include "support/folders.h"

namespace kvcal::test {

inline std::filesystem::path dataset_fixtures() {
  return tests_folder() / "fixtures" / "text" / "datasets";
}

/// A folder of files that goes away with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kvcal_datasets_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// What body's Error says without the folder in front of file names; "" if it throws none.
template <class Body>
std::string error_of(const std::filesystem::path& folder, Body&& body) {
  std::string message;
  try {
    body();
  } catch (const Error& error) {
    message = error.message();
  }
  const std::string prefix = folder.string() + "/";
  for (size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix))
    message.erase(at, prefix.size());
  return message;
}

}  // namespace kvcal::test
