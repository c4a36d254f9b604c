#include "run/report_files.h"

#include "core/file.h"
#include "core/folder.h"
#include "core/replaceable.h"

namespace kvcal {
namespace {

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
    diagnostics.inform("wrote " + std::to_string(num_plots) + " plots to " + files.plots);
}

void write_report_files(const ReportFiles& files, const std::string& page,
                        const std::vector<report::Plot>& plots, Diagnostics& diagnostics) {
  StagedOutputs outputs;
  stage_report_files(files, page, plots, outputs);
  outputs.commit();
  tell_report_files(files, plots.size(), diagnostics);
}

}  // namespace kvcal
