#include "checkpoint/hollow_file.h"

#include <algorithm>
#include <fstream>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/posix_file.h"

namespace kvcal {
namespace {

constexpr std::string_view kListName = ".kvcal_present_tensors.json";

}  // namespace

void write_hollow_file(const fs::path& path, std::string_view head, uint64_t size) {
  write_text_file(path, head.substr(0, std::min<uint64_t>(head.size(), size)));
  std::error_code error;
  fs::resize_file(path, size, error);
  if (error) fail_code(path, "cannot make a file of " + std::to_string(size) + " bytes", error);
}

void fill_hollow_file(const fs::path& path, uint64_t offset, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.flush();
  if (!file) fail(path.string(), ": cannot write ", bytes.size(), " bytes at ", offset);
}

void write_present_tensors(const fs::path& folder, const PresentTensors& tensors) {
  write_text_file(folder / kListName, Json(tensors).dump());
}

std::optional<std::set<std::string, std::less<>>> present_tensors(const fs::path& file) {
  const fs::path list = file.parent_path() / kListName;
  if (!is_there(list)) return std::nullopt;
  std::set<std::string, std::less<>> names;
  const Json by_file = parse_json(read_text(list));
  if (const Json* found = find_field(by_file, file.filename().string()))
    for (const Json& name : *found) names.insert(name.get<std::string>());
  return names;
}

}  // namespace kvcal
