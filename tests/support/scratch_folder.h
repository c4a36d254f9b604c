#pragma once

#include <stdlib.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/file.h"

namespace kvcal::test {

/// An empty folder of the test's own, removed with all it holds.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "kvcal-test-XXXXXX").string();
    KVCAL_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path operator/(const fs::path& name) const { return path_ / name; }

 private:
  fs::path path_;
};

inline void write_file(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  write_text_file(path, content);
}

/// Relative name → content of every file below folder; folders that hold nothing end in '/'.
inline std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (entry.is_regular_file())
      contents[name] = read_text(entry.path());
    else if (entry.is_directory() && fs::is_empty(entry.path()))
      contents[name + "/"] = "";
  }
  return contents;
}

/// The message of the Error that body throws; "no error" if it throws none.
template <class Body>
std::string message_of(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

/// Whether text has part in it.
inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace kvcal::test
