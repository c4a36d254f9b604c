#include "sweep/names.h"

#include <algorithm>

#include "core/file.h"

namespace kvcal {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

void check_name(const YamlNode& node, const std::string& path) {
  constexpr size_t kMostBytes = 100;
  if (node.text.empty() || node.text.size() > kMostBytes ||
      !std::ranges::all_of(node.text, is_name_char))
    fail_at(node, path, ": found ", describe(node), " as a name, expected 1 to ", kMostBytes,
            " letters, digits and . _ -");
}

std::string name_from(const fs::path& path) {
  std::string name = fs::absolute(path / "").lexically_normal().parent_path().filename().string();
  std::ranges::replace_if(
      name, [](char c) { return !is_name_char(c); }, '-');
  return name;
}

}  // namespace kvcal
