#pragma once

#include "datasets/record_columns.h"
#include "eval/generate.h"
#include "family/family_choice.h"
#include "inspect/checkpoint_source.h"
#include "run/command_output.h"
#include "run/command_paths.h"
#include "run/devices.h"
#include "run/loaded_model.h"
#include "run/output_formats.h"
#include "shell/options.h"

namespace kvcal {

// Options that several commands have. Each is declared here once, under the title of its group.

/// The largest limit of a mean KL, in nats.
inline constexpr double kMostKl = 1e6;
/// The largest number of samples.
inline constexpr int64_t kMostSamples = int64_t{1} << 40;

/// A model's folder, or an id of one, which becomes a local path before the command runs.
Option& declare_model(Options& options, const std::string& names, std::string& model,
                      const std::string& help);
/// The same of a data set's path, name or id.
Option& declare_dataset(Options& options, const std::string& names, std::string& dataset,
                        const std::string& help);
/// "checkpoint" of a command that runs nothing: the weights of an id are not fetched.
void declare_checkpoint(Options& options, CheckpointSource& checkpoint, bool offline_config,
                        const std::string& help);
/// --family and --family-file. The file lives as long as the options.
void declare_family(Options& options, FamilyChoice& family);

/// --text-column, --prompt-column, --response-column, --messages-column and --delimiter.
void declare_columns(Options& options, RecordColumns& columns);
/// --chat-template and --chat-template-kwargs.
void declare_chat(Options& options, ChatOptions& chat);
/// --skip-bad-records and --max-record-bytes.
void declare_record_limits(Options& options, RecordOptions& records);
/// All three.
void declare_records(Options& options, RecordOptions& records);

/// --recipe, whose default is in recipe.
void declare_recipe(Options& options, std::string& recipe);
/// --kv-cache-dtype of an output.
void declare_scaled_cache(Options& options, OutputOptions& output);
/// --kv-cache-dtype-skip-layers, vLLM's option.
void declare_skip_layers(Options& options, std::vector<int64_t>& layers, const std::string& help);
/// --scale-dtype and --headroom.
void declare_scale_options(Options& options, OutputOptions& output, double& headroom);
/// --kv-cache-dtype, --kv-cache-dtype-skip-layers, --scales and --unit-scales of a cache that runs.
void declare_cache(Options& options, CacheOptions& cache);
/// Names of the caches that a model runs with.
std::vector<std::string> cache_types();

/// --for and --tp-size.
void declare_engine(Options& options, OutputOptions& output);
/// --output of a folder that appears complete or not at all.
Option& declare_output(Options& options, std::string& output);
Option& declare_format(Options& options, OutputOptions& output, const std::string& help);
/// The help of --format where calibrated scales are written.
std::string format_help();
void declare_scales_only(Options& options, OutputOptions& output);
/// --base-model and --license, of outputs with model cards.
void declare_card(Options& options, CardNames& card);
void declare_overwrite(Options& options, bool& overwrite,
                       const std::string& help = "Replace the output if it exists");
/// --html and --plots; `overwrite` is the command's to fill.
void declare_report(Options& options, ReportFiles& files);

/// --temperature, --top-p, --top-k and --seed.
void declare_sampling(Options& options, SamplingOptions& sampling);
/// --device, --compute-dtype, --threads; inputs: --inputs, too.
void declare_device(Options& options, DeviceOptions& device, bool has_inputs);
void declare_threads(Options& options, int& threads);

void declare_json(Options& options, bool& json, const std::string& help);
/// --color, of every command.
void declare_colours(Options& options);
/// --verbose, of a command that has tables.
Option& declare_verbose(Options& options);
/// --quiet, of a command that shows progress or says what it wrote.
void declare_quiet(Options& options);
/// Both, which exclude each other.
void declare_verbosity(Options& options);

/// Prints, as JSON, the manifest of an output with "outputs" and "engines"; else what print_result
/// prints, "wrote FORMAT: FOLDER", and the answers of the engines: a line each of those that were
/// asked for, or with --verbose.
void print_output(const WrittenOutput& output, const std::vector<ServedEngine>& engines,
                  const OutputOptions& options, bool json,
                  const std::function<void()>& print_result);
/// Warns of what the summary of an output's scales warns of.
void warn_of_scales(const WrittenOutput& output, Diagnostics& diagnostics);
/// "outputs" of a command: the folders and files of its formats.
Json folders_json(const std::vector<WrittenFolder>& folders);
/// The manifest with what was written where, and what the engines make of it.
Json manifest_with_outputs(const WrittenOutput& output, const std::vector<ServedEngine>& engines);
/// What Python gets of a written output.
Json output_json(const WrittenOutput& written, const std::vector<ServedEngine>& engines,
                 const OutputOptions& options);

}  // namespace kvcal
