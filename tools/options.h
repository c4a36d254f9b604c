#pragma once

#include "commands.h"
#include "family/model_config.h"
#include "report/checkpoint_report.h"
#include "run/convert_checkpoint.h"
#include "run/output_formats.h"
#include "run/report_files.h"

namespace kvcal {

/// Returns --output, which is not required yet.
CLI::Option* add_output_options(CLI::App& command, OutputOptions& options);
/// Adds the options that say where an output goes and what of it: --output, --tp-size,
/// --scales-only, --overwrite.
CLI::Option* add_target_options(CLI::App& command, OutputOptions& options);

/// A table of the attention modules, and of the inputs of Linears where there are any; then how
/// many weights were written.
void print_calibration(const Calibration& calibration, const WrittenCheckpoint& written);

/// "wrote FORMAT: FOLDER", a line each; after joined formats, the engines that they serve.
void print_folders(const std::vector<WrittenFolder>& folders, const ModelConfig& config);

/// Adds --report FILE and --plots DIR; `overwrite` is the command's to fill.
void add_report_options(CLI::App& command, ReportFiles& files,
                        const std::string& page_name = "--report");
/// Writes the page and the plots that were asked for, and says so on stderr.
void draw_checkpoint(const ReportFiles& files, const report::CheckpointReport& report);

/// Prints the source, what each layer loses, and the written folders; json: the manifest instead.
void print_conversion(const ConversionResult& result, bool json);

}  // namespace kvcal
