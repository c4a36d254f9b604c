#include <iostream>

#include "commands.h"
#include "core/json.h"
#include "core/json_limits.h"
#include "input_options.h"
#include "rewrite/rewritten_checkpoint.h"
#include "run/output_files.h"
#include "synth/synthetic.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

struct SynthOptions {
  std::string config, from, outliers, output, dtype = "auto", max_shard_size = "4GiB";
  SyntheticOptions synthetic;
  bool overwrite = false, json = false;
};

SyntheticOptions checked_options(const SynthOptions& options) {
  SyntheticOptions checked = options.synthetic;
  for (const auto& [word, dtype] :
       {std::pair{"float32", DType::kF32}, {"float16", DType::kF16}, {"bfloat16", DType::kBF16}})
    if (options.dtype == word) checked.dtype = dtype;
  checked.max_shard_bytes =
      in_context("--max-shard-size", [&] { return parse_byte_size(options.max_shard_size); });
  if (checked.max_shard_bytes == 0) fail("--max-shard-size is 0, expected a size like 4GiB");
  return checked;
}

Json json_of(const SynthOptions& options, const SyntheticCheckpoint& made) {
  return {{"path", options.output},
          {"model_type", made.model_type},
          {"seed", options.synthetic.seed},
          {"num_hidden_layers", made.num_layers},
          {"dtype", name_of(made.dtype)},
          {"num_tensors", made.num_tensors},
          {"bytes", made.bytes},
          {"num_files", made.num_files}};
}

/// A real checkpoint with outliers.
void run_outliers(const SynthOptions& options) {
  const OutlierSpec outliers =
      in_context("--outliers", [&] { return parse_outlier_spec(options.outliers); });
  ModelDir model(options.from);
  check_keeps_inputs(options.output, {options.from, options.synthetic.family.file()});
  AtomicDirectory output(options.output, options.overwrite);
  ThreadPool pool(options.synthetic.threads);
  const RewrittenCheckpoint made = write_outliers(
      std::move(model),
      {.outliers = outliers, .seed = options.synthetic.seed, .family = options.synthetic.family},
      pool, output.path());
  output.commit();
  if (options.json) {
    std::cout << dump_json(Json{{"path", options.output},
                                {"from", options.from},
                                {"outliers", options.outliers},
                                {"seed", options.synthetic.seed},
                                {"changed_tensors", made.changed},
                                {"widened_tensors", made.widened},
                                {"added_tensors", made.added},
                                {"largest_error", made.largest_error}});
    return;
  }
  if (is_quiet()) return;
  std::cout << options.output << ": " << options.from << " with " << options.outliers << ", "
            << made.changed << " tensors changed";
  if (made.widened > 0) std::cout << ", " << made.widened << " of them float32 now";
  std::cout << "; "
            << (outliers.bias_norm          ? "another function"
                : made.largest_error == 0.0 ? "the same function"
                                            : "the same function, but for rounding of norms")
            << '\n';
}

void run_synth(const SynthOptions& options) {
  if (!options.from.empty()) return run_outliers(options);
  TerminalDiagnostics diagnostics;
  const SyntheticOptions synthetic = checked_options(options);
  const Json config = read_model_config(options.config);
  check_keeps_inputs(options.output, {options.config, synthetic.family.file()});
  AtomicDirectory output(options.output, options.overwrite);
  const SyntheticCheckpoint made = in_context(options.config, [&] {
    return write_synthetic_checkpoint(config, synthetic, output.path(), diagnostics);
  });
  output.commit();
  if (options.json) {
    std::cout << dump_json(json_of(options, made));
    return;
  }
  if (is_quiet()) return;
  std::cout << options.output << ": " << made.model_type << " with random weights, "
            << made.num_layers << (made.num_layers == 1 ? " layer, " : " layers, ")
            << made.num_tensors << " tensors, " << made.bytes << " bytes of " << made.dtype
            << " in " << made.num_files << (made.num_files == 1 ? " file" : " files") << '\n';
}

}  // namespace

void add_synth(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<SynthOptions>();
  CLI::App* command = app.add_subcommand(
      "synth",
      "Write a checkpoint of a config.json with random weights, or of a model with outliers in K "
      "and V, for benchmarks and tests");
  CLI::Option* config =
      add_text(*command, "--config", options->config, "config.json of a model of random weights");
  CLI::Option* from = add_model(*command, "--from", options->from,
                                "Model folder, or an id of the hub, whose K and V get outliers");
  CLI::Option* outliers =
      add_text(*command, "--outliers", options->outliers,
               "Outliers of --from, such as 'k:pairs=2,factor=1024;v:channels=1,factor=16', "
               "'bias:norm=750', 'bias:norm=350,pairs=4' or '...;layers=0,29'");
  config->excludes(from)->excludes(outliers);
  from->needs(outliers);
  outliers->needs(from);
  // The folder was an argument before it was an option.
  add_text(*command, "output,-o,--output", options->output,
           "Folder to write; appears complete or not at all")
      ->required();
  add_family_options(*command, options->synthetic.family);
  add_number(*command, "--seed", options->synthetic.seed, "Same seed, same bytes", 0, UINT64_MAX);
  add_number_to<int64_t>(*command, "--layers", options->synthetic.num_layers,
                         "Only the first of the layers", 1, int64_t{1} << 30);
  command
      ->add_option("--dtype", options->dtype,
                   "float32, float16 or bfloat16; auto: config.json's, or bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "float16", "bfloat16"}));
  add_number_text(*command, "--max-shard-size", options->max_shard_size,
                  "What is larger goes into several files", parse_byte_size)
      ->capture_default_str();
  add_number(*command, "--threads", options->synthetic.threads, "0: one for each core", 0, 4096);
  command->add_flag("--overwrite", options->overwrite, "Replace the output if it exists");
  command->add_flag("--json", options->json, "Print JSON instead of text");
  command->callback([options, &run] {
    if (options->config.empty() && options->from.empty())
      throw CLI::RequiredError("--config or --from");
    run = [options] { run_synth(*options); };
  });
}

}  // namespace kvcal
