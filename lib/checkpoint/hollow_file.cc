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

/// Folder beside hollow files: for each file with tensors that have bytes a list of their names,
/// apart, since a checkpoint of hundreds of files is opened many times.
constexpr std::string_view kListsName = ".kvcal_present_tensors";

fs::path list_of(const fs::path& folder, const std::string& file) {
  return folder / kListsName / (file + ".json");
}

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
  make_folders(folder / kListsName);
  for (const auto& [file, names] : tensors)
    write_text_file(list_of(folder, file), Json(names).dump());
}

std::optional<std::set<std::string, std::less<>>> present_tensors(const fs::path& file) {
  const fs::path folder = file.parent_path();
  if (!is_folder(folder / kListsName)) return std::nullopt;
  std::set<std::string, std::less<>> names;
  const fs::path list = list_of(folder, file.filename().string());
  if (!is_there(list)) return names;
  for (const Json& name : parse_json(read_text(list))) names.insert(name.get<std::string>());
  return names;
}

}  // namespace kvcal
