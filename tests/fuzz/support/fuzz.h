#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace kvcal::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs body, which meets a stranger's bytes: a kvcal::Error is the only exception that may leave
/// it, and its message must say something. True where there was none.
template <class Body>
bool accepts(Body&& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    KVCAL_CHECK(!error.message().empty());
    return false;
  }
}

/// A folder in memory of this process's own, taken away when it ends.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file of that name, in place of one that is there, and gives its path.
  std::filesystem::path write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

/// A committed file of tests/fixtures, whole.
std::string fixture(const std::string& name);

/// Stands between the parts of an input that is several files.
inline constexpr std::string_view kBetweenParts = "\n=====\n";

/// The parts of an input, with kBetweenParts between them. At least count, empty ones at
/// the end where there are fewer.
std::vector<std::string_view> parts_of(std::string_view text, size_t count);

}  // namespace kvcal::fuzz
