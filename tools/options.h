#pragma once

#include "commands.h"
#include "family/model_config.h"
#include "report/checkpoint_report.h"
#include "run/calibration_result.h"
#include "run/convert_checkpoint.h"
#include "run/engines_served.h"
#include "run/report_files.h"

namespace kvcal {

/// Adds --kv-cache-dtype-skip-layers, vLLM's option: numbers apart by spaces or commas.
CLI::Option* add_skip_layers_option(CLI::App& command, std::vector<int64_t>& layers,
                                    const std::string& help);
/// Returns --output, which is not required yet.
CLI::Option* add_output_options(CLI::App& command, OutputOptions& options);
/// Adds --for.
void add_engine_option(CLI::App& command, OutputOptions& options);
/// Adds --headroom.
void add_headroom_option(CLI::App& command, double& headroom);
/// Adds --recipe, whose default is in recipe.
void add_recipe_option(CLI::App& command, std::string& recipe);
/// Adds the options that say where an output goes and what of it: --output, --tp-size,
/// --scales-only, --overwrite.
CLI::Option* add_target_options(CLI::App& command, OutputOptions& options);

/// Prints the manifest of an output (json), or what print_result prints, then "wrote FORMAT:
/// FOLDER" and "vLLM 0.32: loaded: vllm serve OUT", a line each, and one for engines that are not
/// known.
void print_output(const WrittenOutput& output, const std::vector<ServedEngine>& engines, bool json,
                  const std::function<void()>& print_result);

/// Adds --html FILE and --plots DIR; `overwrite` is the command's to fill.
void add_report_options(CLI::App& command, ReportFiles& files);

/// Prints the source, what each layer loses, and the written folders; json: the manifest instead.
void print_conversion(const ConversionRequest& request, const ConversionResult& result, bool json);

}  // namespace kvcal
