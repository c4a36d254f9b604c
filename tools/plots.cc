#include "plots.h"

#include <iostream>

#include "core/file.h"
#include "core/folder.h"
#include "export/writer.h"

namespace kvcal {
namespace {

/// A folder that is replaced as a whole must hold nothing but what was written so.
void check_plots_folder(const fs::path& folder, bool overwrite) {
  check_new_file(folder, overwrite);
  if (!is_folder(folder)) return;
  for (const fs::path& path : paths_in(folder))
    if (path.extension() != ".svg")
      fail(folder.string(), ": holds ", path.filename().string(),
           ", which is no SVG file; a folder of plots is replaced as a whole");
}

}  // namespace

void add_report_options(CLI::App& command, ReportOptions& options, const std::string& page_name) {
  command.add_option(page_name, options.page, "Also draw it all as a page, in this file")
      ->check(is_not_empty());
  command
      .add_option("--plots", options.plots,
                  "Also write its drawings as SVG files, into this folder")
      ->check(is_not_empty());
}

void check_report_targets(const ReportOptions& options) {
  if (!options.page.empty()) check_new_file(options.page, options.overwrite);
  if (!options.plots.empty()) check_plots_folder(options.plots, options.overwrite);
}

void check_report_targets(const ReportOptions& options, const ModelDir& model) {
  for (const std::string& target : {options.page, options.plots})
    if (!target.empty()) check_target(model, target);
  check_report_targets(options);
}

void write_report(const ReportOptions& options, const std::string& page,
                  const std::vector<report::Plot>& plots) {
  if (!options.page.empty()) {
    write_file_atomically(options.page, page, options.overwrite);
    std::cerr << "wrote " << options.page << '\n';
  }
  if (options.plots.empty()) return;
  check_plots_folder(options.plots, options.overwrite);
  AtomicDirectory folder(options.plots, options.overwrite);
  for (const report::Plot& plot : plots) {
    FileWriter file(folder.path() / (plot.name + ".svg"));
    file.write(report::plot_svg(plot));
    file.close();
  }
  folder.commit();
  std::cerr << "wrote " << plots.size() << " plots to " << options.plots << '\n';
}

void write_report(const ReportOptions& options, const report::CheckpointReport& report) {
  write_report(options, report::checkpoint_page(report), report::checkpoint_plots(report));
}

}  // namespace kvcal
