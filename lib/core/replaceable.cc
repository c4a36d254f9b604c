#include "core/replaceable.h"

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"

namespace kvcal {
namespace {

std::string_view name_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::regular:
      return "a file";
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::symlink:
      return "a symbolic link";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::fifo:
      return "a named pipe";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "something that is neither a file nor a folder";
  }
}

bool has_mark(const fs::path& folder) {
  for (const std::string_view name : {kManifestName, kMarkName})
    if (own_type_of(folder / name) == fs::file_type::regular) return true;
  return false;
}

}  // namespace

void check_replaceable(const fs::path& target, OutputKind kind, bool overwrite) {
  // A name with a slash at its end would be what a link leads to.
  const fs::path place = target.has_filename() ? target : target.parent_path();
  const fs::file_type type = own_type_of(place);
  if (type == fs::file_type::not_found) return;
  if (!overwrite) fail(target.string(), ": exists; pass --overwrite to replace it");
  const bool is_folder = kind == OutputKind::kFolder;
  if (type != (is_folder ? fs::file_type::directory : fs::file_type::regular))
    fail(target.string(), ": is ", name_of(type), "; --overwrite replaces only ",
         is_folder ? "a folder" : "a regular file", " here");
  if (!is_folder) return;
  const std::vector<fs::path> inside = paths_in(place);
  if (!inside.empty() && !has_mark(place))
    fail(target.string(), ": is a folder that kvcal did not write (it holds ",
         inside.front().filename().string(), ", and neither ", kManifestName, " nor ", kMarkName,
         "); --overwrite replaces only its own outputs");
}

void check_holds_no_links(const fs::path& folder) {
  for (const fs::path& path : paths_in(folder)) {
    const fs::file_type type = own_type_of(path);
    if (type == fs::file_type::directory)
      check_holds_no_links(path);
    else if (type != fs::file_type::regular && type != fs::file_type::not_found)
      fail(path.string(), ": is ", name_of(type), ", and kvcal keeps only its own files here");
  }
}

void mark_output(const fs::path& folder) {
  if (own_type_of(folder / kManifestName) != fs::file_type::not_found) return;
  write_text_file(
      folder / kMarkName,
      "kvcal wrote this folder. While this file is here, --overwrite may replace the folder.\n");
}

}  // namespace kvcal
