#pragma once

#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/staged_output.h"
#include "export/writer.h"
#include "report/plot.h"

namespace kvcal {

/// Files that a command draws its result into; empty: none.
struct ReportFiles {
  std::string page;   ///< an HTML file
  std::string plots;  ///< a folder of SVG files
  bool overwrite = false;

  bool is_asked_for() const { return !page.empty() || !plots.empty(); }
};

/// Before the work: throws Error where something exists that may not be replaced. A folder of plots
/// is replaced only where it holds nothing else.
void check_report_files(const ReportFiles& files);
/// The same, and throws Error where a target lies in the folder of the model.
void check_report_files(const ReportFiles& files, const ModelDir& model);

/// Writes the requested files, which appear with the others of outputs.
void stage_report_files(const ReportFiles& files, const std::string& page,
                        const std::vector<report::Plot>& plots, StagedOutputs& outputs);
/// Says where they are.
void tell_report_files(const ReportFiles& files, size_t num_plots, Diagnostics& diagnostics);
/// Both, one after the other: they appear together or not at all.
void write_report_files(const ReportFiles& files, const std::string& page,
                        const std::vector<report::Plot>& plots, Diagnostics& diagnostics);

}  // namespace kvcal
