#pragma once

#include <string>
#include <vector>

#include "commands.h"
#include "report/checkpoint_report.h"

namespace kvcal {

/// Where a command draws what it found; empty: nowhere.
struct ReportOptions {
  std::string page;   ///< an HTML file
  std::string plots;  ///< a folder of SVG files
  bool overwrite = false;

  bool is_asked_for() const { return !page.empty() || !plots.empty(); }
};

/// Adds --report FILE and --plots DIR; `overwrite` is the command's to fill.
void add_report_options(CLI::App& command, ReportOptions& options,
                        const std::string& page_name = "--report");

/// Before the work: throws Error where something exists that may not be replaced, or would lie in
/// the folder of the model. A folder of plots is replaced only where it holds nothing else.
void check_report_targets(const ReportOptions& options);
void check_report_targets(const ReportOptions& options, const ModelDir& model);

/// Writes what was asked for, and says so on stderr. Files and folders appear complete or not at
/// all.
void write_report(const ReportOptions& options, const std::string& page,
                  const std::vector<report::Plot>& plots);
void write_report(const ReportOptions& options, const report::CheckpointReport& report);

}  // namespace kvcal
