#include "run/output_files.h"

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"

namespace kvcal {
namespace {

void check_one(const fs::path& path, bool overwrite, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (input.empty() || !is_there(input)) continue;
    if (is_folder(input) && lies_in(path, input))
      fail(path.string(), ": lies in the source folder ", input, ", which is never written to");
    if (lies_in(path, input) || lies_in(input, path))
      fail(path.string(), ": is read by this run: ", input);
  }
  const fs::path folder = fs::absolute(path).parent_path();
  if (!is_folder(folder)) fail(path.string(), ": no such folder ", folder.string());
  check_new_file(path, overwrite);
}

}  // namespace

void check_output_files(const std::vector<OutputFile>& outputs, bool overwrite,
                        const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].path.empty()) continue;
    in_context(outputs[i].option, [&] {
      check_one(outputs[i].path, overwrite, inputs);
      for (size_t k = 0; k < i; ++k)
        if (!outputs[k].path.empty() && (lies_in(outputs[i].path, outputs[k].path) ||
                                         lies_in(outputs[k].path, outputs[i].path)))
          fail(outputs[i].path, ": is or lies in what ", outputs[k].option, " writes");
    });
  }
}

fs::path existing_folder_of(const fs::path& path) {
  fs::path there = fs::absolute(path.empty() ? fs::path(".") : path).lexically_normal();
  if (!there.has_filename()) there = there.parent_path();
  while (there.has_relative_path() && !is_there(there)) there = there.parent_path();
  return there;
}

std::optional<uint64_t> free_bytes_at(const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return std::nullopt;
  return space.available;
}

}  // namespace kvcal
