#include <algorithm>
#include <iostream>

#include "commands.h"
#include "core/file.h"
#include "core/join.h"
#include "core/number_text.h"
#include "core/registry.h"
#include "datasets/named_dataset.h"
#include "input_options.h"
#include "kvcal_version.h"
#include "options.h"
#include "run/evaluation_text.h"
#include "run/output_files.h"
#include "run/report_files.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

struct EvalCommand {
  std::string task;
  EvalOptions eval;
  LikelihoodOptions likelihood = {.num_texts = 2};
  SensitivityOptions sensitivity;
  GsmTaskOptions gsm8k;
  std::optional<bool> fewshot_as_multiturn;
  std::string fewshot_dataset, cache_memory, output_recipe, log_samples;
  std::string max_perplexity_increase, min_top1, min_exact_match, min_exact_match_flexible;
  bool json = false, overwrite = false;
  ReportFiles report;
};

/// Files of one evaluation, which appear together.
class EvalFiles {
 public:
  explicit EvalFiles(const EvalCommand& command) : command_(command) {}

  void add(const std::string& path, const std::string& text) {
    auto file = std::make_unique<AtomicFile>(path, command_.overwrite);
    write_text_file(file->path(), text);
    outputs_.add(std::move(file));
  }
  /// Adds page and plots, where they are asked for. result: of any task.
  template <class Result>
  void draw(const Result& result) {
    if (!command_.report.is_asked_for()) return;
    const report::EvalReport page = evaluation_report(command_.eval, KVCAL_VERSION, result);
    const std::vector<report::Plot> plots = eval_plots(page);
    num_plots_ = plots.size();
    stage_report_files(command_.report, eval_page(page), plots, outputs_);
  }
  void commit(Diagnostics& diagnostics) {
    outputs_.commit();
    tell_report_files(command_.report, num_plots_, diagnostics);
  }

 private:
  const EvalCommand& command_;
  StagedOutputs outputs_;
  size_t num_plots_ = 0;
};

void throw_if_missed(const std::vector<std::string>& missed) {
  if (!missed.empty()) throw GateMissed("gate missed: " + join(missed, "\ngate missed: "));
}

void print_result(const EvalCommand& command, const Json& json, const std::string& text) {
  std::cout << (command.json ? dump_json(json) : text) << std::flush;
}

void run_likelihood(EvalCommand command) {
  command.likelihood.has_reference = command.task == "kl";
  if (!command.likelihood.has_reference || command.report.page.empty())
    command.likelihood.num_texts = 0;
  TerminalDiagnostics diagnostics;
  const LikelihoodResult result = evaluate_likelihood(
      command.eval, command.likelihood, diagnostics, [&](const LikelihoodResult& scores) {
        print_result(command, evaluation_json(command.eval, KVCAL_VERSION, scores),
                     evaluation_text(scores, most_rows()));
      });
  EvalFiles files(command);
  files.draw(result);
  files.commit(diagnostics);
  throw_if_missed(result.missed);
}

void run_gsm8k(EvalCommand command) {
  if (command.fewshot_as_multiturn && !command.gsm8k.questions.apply_chat_template)
    fail("--fewshot-as-multiturn needs --apply-chat-template");
  const ChatOptions& chat = command.eval.sequences.records.chat;
  if (!to_json(chat).empty() && !command.gsm8k.questions.apply_chat_template)
    fail("--chat-template and --chat-template-kwargs need --apply-chat-template");
  command.gsm8k.questions.chat = chat;
  if (command.gsm8k.questions.batch_size > 0 && !command.cache_memory.empty())
    fail("--batch-size and --cache-memory both say how many questions go together; give one");
  command.gsm8k.questions.fewshot_as_multiturn = command.fewshot_as_multiturn.value_or(true);
  command.gsm8k.questions.fewshot_dataset = command.fewshot_dataset;
  if (!command.cache_memory.empty())
    command.gsm8k.questions.cache_bytes =
        in_context("--cache-memory", [&] { return parse_byte_size(command.cache_memory); });
  TerminalDiagnostics diagnostics;
  const GsmTaskResult result = evaluate_gsm8k(command.eval, command.gsm8k, diagnostics);
  const Json json = evaluation_json(command.eval, KVCAL_VERSION, command.gsm8k, result);
  EvalFiles files(command);
  if (!command.log_samples.empty())
    files.add(command.log_samples, join(json.at("samples"), "",
                                        [](const Json& sample) { return sample.dump() + '\n'; }));
  files.draw(result);
  print_result(command, json, evaluation_text(result));
  files.commit(diagnostics);
  throw_if_missed(result.missed);
}

void run_sensitivity(EvalCommand command) {
  command.sensitivity.needs_recipe = !command.output_recipe.empty();
  if (command.sensitivity.needs_recipe && !command.sensitivity.kl_budget)
    fail("--output-recipe needs --kl-budget, which says how many layers to keep");
  TerminalDiagnostics diagnostics;
  const SensitivityResult result =
      evaluate_sensitivity(command.eval, command.sensitivity, diagnostics);
  const Json json = evaluation_json(command.eval, KVCAL_VERSION, result);
  const bool has_recipe = result.proposal && !result.proposal->recipe.empty();
  EvalFiles files(command);
  if (command.sensitivity.needs_recipe && has_recipe)
    files.add(command.output_recipe, result.proposal->recipe);
  files.draw(result);
  print_result(command, json, evaluation_text(result, most_rows()));
  files.commit(diagnostics);
  if (command.sensitivity.needs_recipe && !has_recipe)
    throw GateMissed("no recipe: with FP8 in the least sensitive layer alone the mean KL is over " +
                     fixed("%g", *command.sensitivity.kl_budget));
}

using RunTask = void(EvalCommand command);
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
const TaskOptions kOfGsm8k{"Options of --task gsm8k", {"gsm8k"}};

/// An option that the task would not look at was meant for something.
void check_options_of_task(const CLI::App& command, const std::string& task) {
  for (const TaskOptions* of : {&kOfSequences, &kOfVariants, &kOfKl, &kOfSensitivity, &kOfGsm8k}) {
    if (std::ranges::find(of->tasks, task) != of->tasks.end()) continue;
    for (const CLI::Option* option : command.get_option_group(of->title)->get_options())
      if (option->count() > 0)
        fail(option->get_name(), " is for --task ", join(of->tasks, ", "), "; --task is ", task);
  }
}

void check_outputs(const EvalCommand& command) {
  const EvalOptions& eval = command.eval;
  std::vector<std::string> inputs{eval.model, eval.dataset, eval.reference, eval.cache.scales,
                                  command.fewshot_dataset};
  for (const std::string& text : eval.variants) {
    const VariantSpec spec = parse_variant(text);
    inputs.push_back(spec.folder);
    inputs.push_back(spec.cache.scales);
  }
  check_output_files({{"--html", command.report.page},
                      {"--plots", command.report.plots, OutputKind::kFolder},
                      {"--output-recipe", command.output_recipe},
                      {"--log-samples", command.log_samples}},
                     command.overwrite, inputs);
  check_report_files(command.report);
}

/// Gates that are given in per cent or as fractions.
void read_gates(EvalCommand& command) {
  const auto read = [](const char* option, const std::string& text,
                       double (*parse)(std::string_view), std::optional<double>& gate) {
    if (!text.empty()) in_context(option, [&] { gate = parse(text); });
  };
  Gates& gates = command.likelihood.gates;
  read("--max-perplexity-increase", command.max_perplexity_increase, parse_fraction,
       gates.max_perplexity_increase);
  read("--min-top1", command.min_top1, parse_part, gates.min_top1);
  GsmGates& answers = command.gsm8k.gates;
  read("--min-exact-match", command.min_exact_match, parse_part, answers.min_strict);
  read("--min-exact-match-flexible", command.min_exact_match_flexible, parse_part,
       answers.min_flexible);
}

void run_eval(const CLI::App& app, EvalCommand command) {
  command.task = kTasks.name_of(command.task);
  check_options_of_task(app, command.task);
  if (app.get_option_group(kOfKl.title)->get_option("--texts")->count() > 0 &&
      command.report.page.empty())
    fail("--texts is for --html, which is not given");
  check_outputs(command);
  read_gates(command);
  kTasks.at(command.task)(command);
}

/// Nats: the KL of a token is at most its surprisal, far below.

void add_kl_options(CLI::App& command, EvalCommand& options) {
  add_model(command, "--reference", options.eval.reference,
            "Model that KL is measured from; default: the same with an unquantized cache");
  add_setting(command, "--reference-kv-cache-dtype", options.eval.reference_cache,
              "Cache of what KL is measured from; auto: as its checkpoint says, or the model's "
              "dtype where it is the same model");
  command.add_flag("--per-layer", options.likelihood.per_layer,
                   "KL with only one layer's cache quantized, for each layer");
  add_number(command, "--texts", options.likelihood.num_texts,
             "Sequences whose continuation with each cache stands in --html", 0, 1000);
  add_number_to<double>(command, "--max-kl", options.likelihood.gates.max_kl,
                        "Exit with 3 where the mean KL is over this (nats)", 0.0, kMostKl);
  add_number_text(command, "--max-perplexity-increase", options.max_perplexity_increase,
                  "Exit with 3 where perplexity is over the reference's by more: 0.5% or 0.005",
                  parse_fraction);
  add_number_text(command, "--min-top1", options.min_top1,
                  "Exit with 3 where fewer top tokens are the reference's: 99% or 0.99",
                  parse_part);
}

void add_sequence_options(CLI::App& command, SequenceOptions& options) {
  add_number(command, "--num-samples", options.num_sequences, "Sequences to score at most", 1,
             int64_t{1} << 32);
  add_number(command, "--max-seq-length", options.max_seq_length, "Tokens a sequence is cut at", 2,
             int64_t{1} << 24);
  add_number(command, "--stride", options.stride,
             "Of text: tokens from a window's begin to the next one's; 0: --max-seq-length. "
             "A window scores what the one before has not",
             0, int64_t{1} << 24);
  add_reading_options(command, options.records);
}

void add_sensitivity_options(CLI::App& command, EvalCommand& options) {
  add_number_to<double>(command, "--kl-budget", options.sensitivity.kl_budget,
                        "The mean KL that may be left (nats)", 0.0, kMostKl);
  add_text(command, "--output-recipe", options.output_recipe,
           "File for the recipe that keeps the layers");
}

void add_gsm8k_options(CLI::App& group, EvalCommand& options) {
  GsmOptions& questions = options.gsm8k.questions;
  add_dataset(group, "--fewshot-dataset", options.fewshot_dataset,
              "JSON lines of worked examples; default: split train of a descriptor");
  add_number(group, "--num-fewshot", questions.num_fewshot, "Worked examples before each question",
             0, int64_t{1} << 16);
  add_number_to<int64_t>(group, "--limit", questions.limit, "Ask the first so many questions alone",
                         1, int64_t{1} << 32);
  add_number(group, "--max-gen-toks", questions.max_gen_toks, "Tokens of an answer at most", 1,
             int64_t{1} << 20);
  group.add_option("--add-bos-token", questions.add_bos_token,
                   "true or false; default: as the tokenizer does on its own");
  group.add_flag("--apply-chat-template", questions.apply_chat_template,
                 "Put question and examples into the model's chat template");
  group.add_option("--fewshot-as-multiturn", options.fewshot_as_multiturn,
                   "With the template: true (default): a turn an example; false: one message");
  add_number(group, "--batch-size", questions.batch_size,
             "Questions answered at a time, which changes no answer; 0: what fits "
             "--cache-memory, 32 at most",
             0, int64_t{1} << 16);
  add_number_text(group, "--cache-memory", options.cache_memory,
                  "Memory for the KV cache of all of them; default: half of what is free",
                  parse_byte_size);
  add_text(group, "--log-samples", options.log_samples, "JSON lines file for prompts and answers");
  add_number_text(group, "--min-exact-match", options.min_exact_match,
                  "Exit with 3 where strict-match is under this: 77% or 0.77", parse_part);
  add_number_text(group, "--min-exact-match-flexible", options.min_exact_match_flexible,
                  "The same of flexible-extract", parse_part);
}

}  // namespace

void add_eval(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<EvalCommand>();
  CLI::App* command = app.add_subcommand(
      "eval", "Measure what a KV cache dtype, scales or FP8 weights do to a model's predictions");
  add_model(*command, "model", options->eval.model,
            "Hugging Face model or output of calibrate: a folder, or an id of the hub")
      ->required();
  command->add_option("--task", options->task, "perplexity, kl, gsm8k or sensitivity")->required();
  add_dataset(*command, "--dataset", options->eval.dataset,
              "Text, or JSON lines or CSV of texts or chats, an id of the hub, or a name (" +
                  join(dataset_names(), ", ") + ")")
      ->required();
  add_family_options(*command, options->eval.family);
  add_cache_options(*command, options->eval.cache);
  command->add_flag("--fp8-attention", options->eval.cache.fp8_attention,
                    "Queries and softmax weights in FP8, too, as vLLM's CUDA backends compute with "
                    "an fp8_e4m3 cache");
  add_sequence_options(*command->add_option_group(kOfSequences.title), options->eval.sequences);
  add_chat_options(*command, options->eval.sequences.records.chat);
  add_variants(*command->add_option_group(kOfVariants.title), "--variant", options->eval.variants,
               "Instead of --kv-cache-dtype and scales: one of several caches that are scored in "
               "the same pass, NAME=CACHE[+attention][:SCALES] or NAME=model:FOLDER; "
               "+attention: as --fp8-attention; SCALES: unit, checkpoint, a file or folder; "
               "repeatable");
  command->get_option_group(kOfVariants.title)
      ->add_flag("--every-cache", options->eval.every_cache,
                 "Score every cache that engines offer in the same pass, the calibrated ones with "
                 "--scales or the checkpoint's");
  add_kl_options(*command->add_option_group(kOfKl.title), *options);
  add_sensitivity_options(*command->add_option_group(kOfSensitivity.title), *options);
  add_gsm8k_options(*command->add_option_group(kOfGsm8k.title), *options);
  add_report_options(*command, options->report);
  command->add_flag("--overwrite", options->overwrite, "Replace files that are there");
  command->add_flag("--allow-16-bit", options->eval.allow_16_bit,
                    "Let gates hold a model without FP8; otherwise it is an error");
  command->add_flag("--json", options->json, "Print a JSON object instead of text");
  add_device_options(*command, options->eval.device);
  add_inputs_option(*command, options->eval.device);
  command->callback([options, command, &run] {
    options->report.overwrite = options->overwrite;
    run = [options, command] { run_eval(*command, *options); };
  });
}

}  // namespace kvcal
