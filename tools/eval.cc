#include <algorithm>

#include "commands.h"
#include "core/registry.h"
#include "eval_gsm8k.h"
#include "eval_likelihood.h"
#include "eval_options.h"
#include "eval_sensitivity.h"
#include "eval_variants.h"
#include "output_files.h"

namespace kvcal {
namespace {

using RunTask = void(const EvalOptions& options);

const Registry<RunTask*> kTasks{"--task",
                                {{"perplexity", run_likelihood},
                                 {"kl", run_likelihood},
                                 {"gsm8k", run_gsm8k},
                                 {"sensitivity", run_sensitivity}}};

/// Options that only some tasks have, as a group of the command's help.
struct TaskOptions {
  const char* title;
  std::vector<std::string> tasks;
};
const TaskOptions kOfSequences{"Options of --task perplexity, kl and sensitivity",
                               {"perplexity", "kl", "sensitivity"}};
const TaskOptions kOfVariants{"Options of --task perplexity, kl and gsm8k",
                              {"perplexity", "kl", "gsm8k"}};
const TaskOptions kOfKl{"Options of --task kl", {"kl"}};
const TaskOptions kOfSensitivity{"Options of --task sensitivity", {"sensitivity"}};
const TaskOptions kOfGsm8k{kGsmOptionsTitle, {"gsm8k"}};

/// An option that the task would not look at was meant for something.
void check_options_of_task(const CLI::App& command, const std::string& task) {
  for (const TaskOptions* of : {&kOfSequences, &kOfVariants, &kOfKl, &kOfSensitivity, &kOfGsm8k}) {
    if (std::ranges::find(of->tasks, task) != of->tasks.end()) continue;
    for (const CLI::Option* option : command.get_option_group(of->title)->get_options())
      if (option->count() > 0) {
        std::string tasks;
        for (const std::string& one : of->tasks) tasks += (tasks.empty() ? "" : ", ") + one;
        fail(option->get_name(), " is for --task ", tasks, "; --task is ", task);
      }
  }
}

void check_outputs(const EvalOptions& options) {
  std::vector<std::string> inputs{options.model, options.dataset, options.reference,
                                  options.cache.scales, options.gsm8k.fewshot_dataset};
  for (const std::string& text : options.variants) {
    const VariantSpec spec = parse_variant(text);
    inputs.push_back(spec.folder);
    inputs.push_back(spec.cache.scales);
  }
  check_output_files({{"--report", options.report.page},
                      {"--plots", options.report.plots},
                      {"--output-recipe", options.output_recipe},
                      {"--log-samples", options.gsm8k.log_samples}},
                     options.overwrite, inputs);
  check_report_targets(options.report);
}

void run_eval(const CLI::App& command, EvalOptions options) {
  options.task = kTasks.name_of(options.task);
  check_options_of_task(command, options.task);
  if (command.get_option_group(kOfKl.title)->get_option("--texts")->count() > 0 &&
      options.report.page.empty())
    fail("--texts is for --report, which is not given");
  check_outputs(options);
  kTasks.at(options.task)(options);
}

void add_kl_options(CLI::App& command, EvalOptions& options) {
  command
      .add_option("--reference", options.reference,
                  "Model that KL is measured from; default: the same with an unquantized cache")
      ->check(is_not_empty());
  command
      .add_option("--reference-kv-cache-dtype", options.reference_cache,
                  "Cache of what KL is measured from; auto: as its checkpoint says, or the model's "
                  "dtype where it is the same model")
      ->capture_default_str();
  command.add_flag("--per-layer", options.per_layer,
                   "KL with only one layer's cache quantized, for each layer");
  command
      .add_option("--texts", options.num_texts,
                  "Sequences whose continuation with each cache stands in --report")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1000}));
  command
      .add_option("--max-kl", options.max_kl, "Exit with 3 where the mean KL is over this (nats)")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--max-perplexity-increase", options.max_perplexity_increase,
                  "Exit with 3 where perplexity is over the reference's by more: 0.5% or 0.005")
      ->check(is_not_empty());
  command
      .add_option("--min-top1", options.min_top1,
                  "Exit with 3 where fewer top tokens are the reference's: 99% or 0.99")
      ->check(is_not_empty());
}

void add_sequence_options(CLI::App& command, SequenceOptions& options) {
  command.add_option("--num-samples", options.num_sequences, "Sequences to score at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  command.add_option("--max-seq-length", options.max_seq_length, "Tokens a sequence is cut at")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  command
      .add_option("--stride", options.stride,
                  "Of text: tokens from a window's begin to the next one's; 0: --max-seq-length. "
                  "A window scores what the one before has not")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
}

void add_sensitivity_options(CLI::App& command, EvalOptions& options) {
  command.add_option("--kl-budget", options.kl_budget, "The mean KL that may be left (nats)")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--output-recipe", options.output_recipe,
                  "File for the recipe that keeps the layers")
      ->check(is_not_empty());
}

}  // namespace

void add_eval(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand(
      "eval", "Measure what a KV cache dtype, scales or FP8 weights do to a model's predictions");
  command
      ->add_option("model", options->model, "Hugging Face model folder, or an output of calibrate")
      ->required()
      ->check(is_not_empty());
  command->add_option("--task", options->task, "perplexity, kl, gsm8k or sensitivity")->required();
  command
      ->add_option("--dataset", options->dataset,
                   "Text, or JSON lines with text, messages or input_ids")
      ->required()
      ->check(is_not_empty());
  add_cache_options(*command, options->cache);
  add_sequence_options(*command->add_option_group(kOfSequences.title), options->sequences);
  command->add_option_group(kOfVariants.title)
      ->add_option(
          "--variant", options->variants,
          "Instead of --kv-cache-dtype and scales: one of several caches that are scored in "
          "the same pass, NAME=CACHE[:SCALES] or NAME=model:FOLDER; SCALES: unit, "
          "checkpoint, a file or folder; repeatable");
  add_kl_options(*command->add_option_group(kOfKl.title), *options);
  add_sensitivity_options(*command->add_option_group(kOfSensitivity.title), *options);
  add_gsm8k_options(*command, options->gsm8k);
  add_report_options(*command, options->report);
  command->add_flag("--overwrite", options->overwrite, "Replace files that are there");
  command->add_flag("--json", options->json, "Print a JSON object instead of text");
  add_device_options(*command, options->device);
  command->callback([options, command, &run] {
    options->report.overwrite = options->overwrite;
    run = [options, command] { run_eval(*command, *options); };
  });
}

}  // namespace kvcal
