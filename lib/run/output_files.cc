#include "run/output_files.h"

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"

namespace kvcal {
namespace {

void check_one(const OutputFile& output, bool overwrite, const std::vector<std::string>& inputs) {
  check_keeps_inputs(output.path, inputs);
  const fs::path folder = fs::absolute(output.path).parent_path();
  if (!is_folder(folder)) fail(output.path, ": no such folder ", folder.string());
  check_replaceable(output.path, output.kind, overwrite);
}

}  // namespace

void check_keeps_inputs(const std::string& output, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    if (input.empty() || !is_there(input)) continue;
    const bool is_inside = lies_in(output, input), is_around = lies_in(input, output);
    if (is_folder(input) && is_inside && !is_around)
      fail(output, ": lies in the source folder ", input, ", which is never written to");
    if (is_inside) fail(output, ": is read by this run: ", input);
    if (is_around) fail(output, ": holds ", input, ", which this run reads");
  }
}

void check_are_apart(const std::vector<OutputFile>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].path.empty()) continue;
    for (size_t k = 0; k < i; ++k)
      if (!outputs[k].path.empty() &&
          (lies_in(outputs[i].path, outputs[k].path) || lies_in(outputs[k].path, outputs[i].path)))
        fail(outputs[i].option, ": ", outputs[i].path, ": is, holds or lies in ", outputs[k].path,
             ", which ", outputs[k].option, " writes");
  }
}

void check_output_files(const std::vector<OutputFile>& outputs, bool overwrite,
                        const std::vector<std::string>& inputs) {
  check_are_apart(outputs);
  for (const OutputFile& output : outputs)
    if (!output.path.empty())
      in_context(output.option, [&] { check_one(output, overwrite, inputs); });
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
