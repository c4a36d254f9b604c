#include "run/command_paths.h"

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/registry.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "datasets/data_files.h"
#include "datasets/descriptor.h"
#include "datasets/named_dataset.h"
#include "export/writer.h"
#include "hub/hub.h"
#include "hub/hub_cache.h"

namespace kvcal {
namespace {

/// The id that given is, unless a file or folder of that name is there.
std::optional<HubId> id_of(const std::string& given, HubRepo repo) {
  if (given.empty() || is_there(given) || has_files(given)) return std::nullopt;
  return parse_hub_id(given, repo);
}

/// Fetches the parts of a named data set that are read, unless a local copy is there.
void fetch_named(const std::string& name, Diagnostics& diagnostics) {
  const DatasetDescriptor descriptor = read_descriptor(name, {});
  if (is_there(descriptor.local_copy)) return;
  Hub hub(hub_settings(), diagnostics);
  for (const std::string& files : descriptor.hub_files)
    hub.dataset({.repo = HubRepo::kDataset, .name = descriptor.source, .path = files});
}

void check_one(const OutputFile& output, bool overwrite, const std::vector<std::string>& inputs) {
  check_keeps_inputs(output.path, inputs);
  const fs::path folder = fs::absolute(output.path).parent_path();
  if (!is_folder(folder)) fail(output.path, ": no such folder ", folder.string());
  check_replaceable(output.path, output.kind, overwrite);
}

/// A folder that is replaced as a whole must hold nothing but what was written so.
void check_plots_folder(const fs::path& folder, bool overwrite) {
  check_replaceable(folder, OutputKind::kFolder, overwrite);
  if (!is_folder(folder)) return;
  for (const fs::path& path : paths_in(folder))
    if (path.extension() != ".svg" && path.filename() != kMarkName)
      fail(folder.string(), ": holds ", path.filename().string(),
           ", which is no SVG file; a folder of plots is replaced as a whole");
}

}  // namespace

std::string local_model(const std::string& given, Diagnostics& diagnostics) {
  const auto id = id_of(given, HubRepo::kModel);
  return id ? Hub(hub_settings(), diagnostics).model(*id).string() : given;
}

std::string local_dataset(const std::string& given, Diagnostics& diagnostics) {
  if (named_dataset(given, ".yaml")) {
    fetch_named(given, diagnostics);
    return given;
  }
  if (named_dataset(given)) return given;
  if (const fs::path path(given);
      !path.has_parent_path() && !path.has_extension() && !is_there(path) && !is_pattern(path)) {
    const std::string meant = did_you_mean(given, dataset_names());
    if (!meant.empty())
      fail("'", given, "' is neither a file nor the name of a data set", meant, "; names are ",
           join(dataset_names(), ", "));
  }
  const auto id = id_of(given, HubRepo::kDataset);
  return id ? Hub(hub_settings(), diagnostics).dataset(*id).string() : given;
}

std::string local_variant(const std::string& variant, Diagnostics& diagnostics) {
  constexpr std::string_view kModel = "=model:";
  const size_t at = variant.find(kModel);
  if (at == variant.npos) return variant;
  const size_t folder = at + kModel.size();
  return variant.substr(0, folder) + local_model(variant.substr(folder), diagnostics);
}

std::string name_of_model(const ModelDir& model) {
  const std::string path = model.path().string(), name = name_of_source(model.path());
  return name == path ? model.given_path().string() : name;
}

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
        fail_usage(outputs[i].option, ": ", outputs[i].path, ": is, holds or lies in ",
                   outputs[k].path, ", which ", outputs[k].option, " writes");
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
  fs::path there = output_place(path.empty() ? fs::path(".") : path);
  while (there.has_relative_path() && !is_there(there)) there = there.parent_path();
  return there;
}

std::optional<uint64_t> free_bytes_at(const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error) return std::nullopt;
  return space.available;
}

void check_room(const fs::path& output, uint64_t bytes) {
  const fs::path folder = existing_folder_of(output);
  const auto free = free_bytes_at(folder);
  if (free && *free < bytes)
    fail((output.empty() ? folder : output).string(), ": takes ", byte_text(bytes), ", and ",
         folder.string(), " has ", byte_text(*free), " free");
}

void check_report_files(const ReportFiles& files) {
  if (!files.page.empty()) check_replaceable(files.page, OutputKind::kFile, files.overwrite);
  if (!files.plots.empty()) check_plots_folder(files.plots, files.overwrite);
}

void check_report_files(const ReportFiles& files, const ModelDir& model) {
  for (const std::string& target : {files.page, files.plots})
    if (!target.empty()) check_target(model, target);
  check_report_files(files);
}

void stage_report_files(const ReportFiles& files, const std::string& page,
                        const std::vector<report::Plot>& plots, StagedOutputs& outputs) {
  if (!files.page.empty()) {
    auto file = std::make_unique<AtomicFile>(files.page, files.overwrite);
    write_text_file(file->path(), page);
    outputs.add(std::move(file));
  }
  if (files.plots.empty()) return;
  check_plots_folder(files.plots, files.overwrite);
  auto folder = std::make_unique<AtomicDirectory>(files.plots, files.overwrite);
  for (const report::Plot& plot : plots)
    write_text_file(folder->path() / (plot.name + ".svg"), report::plot_svg(plot));
  outputs.add(std::move(folder));
}

void tell_report_files(const ReportFiles& files, size_t num_plots, Diagnostics& diagnostics) {
  if (!files.page.empty()) diagnostics.inform("wrote " + files.page);
  if (!files.plots.empty())
    diagnostics.inform("wrote " + counted(num_plots, "plot") + " to " + files.plots);
}

void write_report_files(const ReportFiles& files, const std::string& page,
                        const std::vector<report::Plot>& plots, Diagnostics& diagnostics) {
  StagedOutputs outputs;
  stage_report_files(files, page, plots, outputs);
  outputs.commit();
  tell_report_files(files, plots.size(), diagnostics);
}

}  // namespace kvcal
