#include <algorithm>
#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "core/registry.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "datasets/named_dataset.h"
#include "kvcal_version.h"
#include "run/command_paths.h"
#include "run/evaluation.h"
#include "shared_options.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

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

/// A task's result: its lines of missed gates, and what becomes of it.
struct Evaluated {
  Json json;
  std::vector<std::string> missed = {};
  std::string recipe = {};  ///< that keeps the budget; empty: none
};

class EvalCommand : public Subcommand {
 public:
  EvalCommand();
  void run() override;
  Json call(Diagnostics& diagnostics) override;
  Evaluated likelihood(Diagnostics& diagnostics);
  Evaluated gsm8k(Diagnostics& diagnostics);
  Evaluated sensitivity(Diagnostics& diagnostics);

 private:
  void declare_sequences();
  void declare_kl();
  void declare_gsm8k();
  void declare_gate(const std::string& name, double (*parse)(std::string_view),
                    std::optional<double>& gate, const std::string& help);
  std::string missing() const override;
  void settle();
  void choose_dataset(Diagnostics& diagnostics);
  void check_options_of_task() const;
  void check_outputs() const;
  void print(const Json& json, const std::string& text) const;
  /// Writes the drawings and a text, which appear together; an empty path: no text.
  void write_files(const report::EvalReport& page, const std::string& path, const std::string& text,
                   Diagnostics& diagnostics) const;

  std::string task_;
  EvalOptions eval_;
  LikelihoodOptions likelihood_;
  SensitivityOptions sensitivity_;
  GsmTaskOptions gsm8k_;
  std::optional<bool> fewshot_as_multiturn_;
  std::string fewshot_dataset_, output_recipe_, log_samples_;
  bool json_ = false, overwrite_ = false, is_call_ = false;
  int64_t num_texts_ = 2;
  ReportFiles report_;
};

const Registry<Evaluated (EvalCommand::*)(Diagnostics&)> kTasks{
    "--task",
    {{"perplexity", &EvalCommand::likelihood},
     {"kl", &EvalCommand::likelihood},
     {"gsm8k", &EvalCommand::gsm8k},
     {"sensitivity", &EvalCommand::sensitivity}}};

EvalCommand::EvalCommand()
    : Subcommand(
          "eval",
          "Measure what a KV cache dtype, scales or FP8 weights do to a model's predictions",
          {{"Perplexity of a text", "kvcal eval FP8-KV --task perplexity --dataset text.txt"},
           {"A gate in a script: exit status 3 where the mean KL is over 0.01",
            "kvcal eval FP8-KV --task kl --dataset chats.jsonl --max-kl 0.01"},
           {"Which layers to keep in 16 bits",
            "kvcal eval FP8-KV --task sensitivity --dataset chats.jsonl \\\n"
            "      --kl-budget 0.005 --output-recipe mixed.yaml"}}) {
  python = {
      "evaluate", "dict[str, Any]",
      R"(Tells what a cache dtype, scales or FP8 weights do to a model's predictions, as `kvcal eval --json` prints it.

task: "perplexity", "kl", "sensitivity" or "gsm8k". Raises `CheckFailed` where a gate (`max_kl`, `min_top1`, ...) is
missed. Of `sensitivity`, "recipe" is the text of the recipe that stays within `kl_budget`.)"};
  declare_model(options, "model", eval_.model,
                "Hugging Face model or output of calibrate: a folder, or an id of the hub")
      .required();
  options.group(kModelAndData);
  options.text("--task", task_, "perplexity, kl, gsm8k or sensitivity")
      .choices_of(kTasks.names())
      .required();
  declare_dataset(options, "--dataset", eval_.dataset,
                  "Text, or JSON lines or CSV of texts or chats, an id of the hub, or a name (" +
                      join(dataset_names(), ", ") + "); default: evaluation, a text of ours");
  declare_chat(options, eval_.sequences.records.chat);
  declare_family(options, eval_.family);
  declare_cache(options, eval_.cache);
  options
      .flag("--fp8-attention", eval_.cache.fp8_attention,
            "Queries and softmax weights in FP8, too, as vLLM's CUDA backends compute with an "
            "fp8_e4m3 cache")
      .program_only();
  options.flag("--allow-16-bit", eval_.allow_16_bit,
               "Let gates hold a model without FP8; otherwise it is an error");
  options.group(kOutput);
  options.flag("--overwrite", overwrite_, "Replace files that are there").program_only();
  declare_report(options, report_);
  declare_device(options, eval_.device, true);
  declare_json(options, json_, "Print a JSON object instead of text");
  declare_verbosity(options);
  declare_sequences();
  declare_kl();
  options.group(kOfSensitivity.title);
  options.number("--kl-budget", sensitivity_.kl_budget, "The mean KL that may be left (nats)", 0.0,
                 kMostKl);
  options.text("--output-recipe", output_recipe_, "File for the recipe that keeps the layers")
      .written(ValueKind::kFile)
      .program_only();
  declare_gsm8k();
}

void EvalCommand::declare_sequences() {
  options.group(kOfSequences.title);
  SequenceOptions& sequences = eval_.sequences;
  options.number("--num-samples", sequences.num_sequences, "Sequences to score at most", 1,
                 int64_t{1} << 32);
  options.number("--max-seq-length", sequences.max_seq_length, "Tokens a sequence is cut at", 2,
                 int64_t{1} << 24);
  options.number("--stride", sequences.stride,
                 "Of text: tokens from a window's begin to the next one's; 0: --max-seq-length. A "
                 "window scores what the one before has not",
                 0, int64_t{1} << 24);
  declare_columns(options, sequences.records.columns);
  declare_record_limits(options, sequences.records);
  options.group(kOfVariants.title);
  Option& variants =
      options
          .list("--variant", eval_.variants,
                "Instead of --kv-cache-dtype and scales: one of several caches that are scored in "
                "the same pass, NAME=CACHE[+attention][:SCALES] or NAME=model:FOLDER; +attention: "
                "as --fp8-attention; SCALES: unit, checkpoint, a file or folder; repeatable")
          .python("variants");
  variants.fetch = [this](Diagnostics& diagnostics) {
    for (std::string& variant : eval_.variants) variant = local_variant(variant, diagnostics);
  };
  options
      .flag("--every-cache", eval_.every_cache,
            "Score every cache that engines offer in the same pass, the calibrated ones with "
            "--scales or the checkpoint's")
      .program_only();
}

/// A gate that is given in per cent or as a fraction.
void EvalCommand::declare_gate(const std::string& name, double (*parse)(std::string_view),
                               std::optional<double>& gate, const std::string& help) {
  options.number_text(
      name, [parse, &gate](const std::string& text) { gate = parse(text); }, help, "float | str");
}

void EvalCommand::declare_kl() {
  options.group(kOfKl.title);
  declare_model(
      options, "--reference", eval_.reference,
      "Model that KL is measured from; default: the same model with an unquantized cache");
  options
      .text("--reference-kv-cache-dtype", eval_.reference_cache,
            "Cache of what KL is measured from; auto: as its checkpoint says, or the model's dtype "
            "where it is the same model")
      .choices_of(cache_types());
  options.flag("--per-layer", likelihood_.per_layer,
               "KL with only one layer's cache quantized, for each layer");
  options
      .number("--texts", num_texts_,
              "Sequences whose continuation with each cache stands in --html", 0, 1000)
      .program_only();
  options.number("--max-kl", likelihood_.gates.max_kl,
                 "Exit with 3 where the mean KL is over this (nats)", 0.0, kMostKl);
  declare_gate("--max-perplexity-increase", parse_fraction,
               likelihood_.gates.max_perplexity_increase,
               "Exit with 3 where perplexity is over the reference's by more: 0.5% or 0.005");
  declare_gate("--min-top1", parse_part, likelihood_.gates.min_top1,
               "Exit with 3 where fewer top tokens are the reference's: 99% or 0.99");
}

void EvalCommand::declare_gsm8k() {
  options.group(kOfGsm8k.title);
  GsmOptions& questions = gsm8k_.questions;
  declare_dataset(options, "--fewshot-dataset", fewshot_dataset_,
                  "JSON lines of worked examples; default: split train of a descriptor")
      .of_kind(ValueKind::kFile)
      .python("fewshot_dataset");
  options.number("--num-fewshot", questions.num_fewshot, "Worked examples before each question", 0,
                 int64_t{1} << 16);
  options.number("--limit", questions.limit, "Ask the first so many questions alone", 1,
                 int64_t{1} << 32);
  options.number("--max-gen-toks", questions.max_gen_toks, "Tokens of an answer at most", 1,
                 int64_t{1} << 20);
  options.boolean("--add-bos-token", questions.add_bos_token,
                  "true or false; default: as the tokenizer does on its own");
  options.flag("--apply-chat-template", questions.apply_chat_template,
               "Put question and examples into the model's chat template");
  options.boolean("--fewshot-as-multiturn", fewshot_as_multiturn_,
                  "With the template: true (default): a turn an example; false: one message");
  options.number("--batch-size", questions.batch_size,
                 "Questions answered at a time, which changes no answer; 0: what fits "
                 "--cache-memory, 32 at most",
                 0, int64_t{1} << 16);
  options.number_text(
      "--cache-memory",
      [&questions](const std::string& text) { questions.cache_bytes = parse_byte_size(text); },
      "Memory for the KV cache of all of them; default: half of what is free", "int | str");
  options.text("--log-samples", log_samples_, "JSON lines file for prompts and answers")
      .written(ValueKind::kFile)
      .program_only();
  declare_gate("--min-exact-match", parse_part, gsm8k_.gates.min_strict,
               "Exit with 3 where strict-match is under this: 77% or 0.77");
  declare_gate("--min-exact-match-flexible", parse_part, gsm8k_.gates.min_flexible,
               "The same of flexible-extract");
}

/// An option that the task would not look at was meant for something.
void EvalCommand::check_options_of_task() const {
  for (const TaskOptions* of : {&kOfSequences, &kOfVariants, &kOfKl, &kOfSensitivity, &kOfGsm8k}) {
    if (std::ranges::find(of->tasks, task_) != of->tasks.end()) continue;
    for (const auto& option : options.all())
      if (option->group == of->title && option->is_given)
        fail_usage(options.shown(option->name()), " is for ", options.shown("--task"), " ",
                   join(of->tasks, ", "), "; ", options.shown("--task"), " is ", task_);
  }
}

void EvalCommand::check_outputs() const {
  std::vector<std::string> inputs{eval_.model, eval_.dataset, eval_.reference, eval_.cache.scales,
                                  fewshot_dataset_};
  for (const std::string& text : eval_.variants) {
    const VariantSpec spec = parse_variant(text);
    inputs.push_back(spec.folder);
    inputs.push_back(spec.cache.scales);
  }
  check_output_files({{"--html", report_.page},
                      {"--plots", report_.plots, OutputKind::kFolder},
                      {"--output-recipe", output_recipe_},
                      {"--log-samples", log_samples_}},
                     overwrite_, inputs);
  check_report_files(report_);
}

/// Fills what follows from several options, and checks those of the task.
void EvalCommand::settle() {
  eval_.version = KVCAL_VERSION;
  task_ = kTasks.name_of(task_);
  check_options_of_task();
  if (task_ != "gsm8k") return;
  GsmOptions& questions = gsm8k_.questions;
  const std::string needed = options.shown("--apply-chat-template");
  const ChatOptions& chat = eval_.sequences.records.chat;
  if (fewshot_as_multiturn_ && !questions.apply_chat_template)
    fail_usage(options.shown("--fewshot-as-multiturn"), " needs ", needed);
  if (!to_json(chat).empty() && !questions.apply_chat_template)
    fail_usage(options.shown("--chat-template"), " and ", options.shown("--chat-template-kwargs"),
               " need ", needed);
  if (questions.batch_size > 0 && questions.cache_bytes)
    fail_usage(options.shown("--batch-size"), " and ", options.shown("--cache-memory"),
               " both say how many questions go together; give one");
  questions.chat = chat;
  questions.fewshot_as_multiturn = fewshot_as_multiturn_.value_or(true);
  questions.fewshot_dataset = fewshot_dataset_;
}

std::string EvalCommand::missing() const {
  const bool has_default = kTasks.name_of(task_) != "gsm8k";
  return has_default || !eval_.dataset.empty() ? "" : "--dataset of --task gsm8k";
}

void EvalCommand::choose_dataset(Diagnostics& diagnostics) {
  if (!eval_.dataset.empty()) return;
  if (const std::string needed = missing(); !needed.empty()) fail_usage(needed, " is required");
  eval_.dataset = kEvaluationDataset;
  diagnostics.note("no --dataset is given: measuring on the program's own '" + eval_.dataset + "'");
}

void EvalCommand::print(const Json& json, const std::string& text) const {
  if (!is_call_) std::cout << (json_ ? dump_json(json) : text) << std::flush;
}

void EvalCommand::write_files(const report::EvalReport& page, const std::string& path,
                              const std::string& text, Diagnostics& diagnostics) const {
  StagedOutputs outputs;
  if (!path.empty()) {
    auto file = std::make_unique<AtomicFile>(path, overwrite_);
    write_text_file(file->path(), text);
    outputs.add(std::move(file));
  }
  std::vector<report::Plot> plots;
  if (report_.is_asked_for()) {
    plots = eval_plots(page);
    stage_report_files(report_, eval_page(page), plots, outputs);
  }
  outputs.commit();
  tell_report_files(report_, plots.size(), diagnostics);
}

Evaluated EvalCommand::likelihood(Diagnostics& diagnostics) {
  likelihood_.has_reference = task_ == "kl";
  likelihood_.num_texts = likelihood_.has_reference && !report_.page.empty() ? num_texts_ : 0;
  Json json;
  const EvalResult result =
      evaluate_likelihood(eval_, likelihood_, diagnostics, [&](const EvalResult& scores) {
        json = likelihood_json(eval_, likelihood_, scores.report);
        print(json, likelihood_text(scores.report, most_rows(), is_verbose()));
      });
  write_files(result.report, "", "", diagnostics);
  return {json, result.missed};
}

Evaluated EvalCommand::gsm8k(Diagnostics& diagnostics) {
  const EvalResult result = evaluate_gsm8k(eval_, gsm8k_, diagnostics);
  const Json json = gsm8k_json(eval_, gsm8k_, result.report);
  print(json, gsm8k_text(result.report));
  const std::string samples =
      join(json.at("samples"), "", [](const Json& sample) { return sample.dump() + '\n'; });
  write_files(result.report, log_samples_, samples, diagnostics);
  return {json, result.missed};
}

Evaluated EvalCommand::sensitivity(Diagnostics& diagnostics) {
  sensitivity_.needs_recipe = !output_recipe_.empty();
  if (sensitivity_.needs_recipe && !sensitivity_.kl_budget)
    fail_usage("--output-recipe needs --kl-budget, which says how many layers to keep");
  const report::EvalReport found = evaluate_sensitivity(eval_, sensitivity_, diagnostics).report;
  const Json json = sensitivity_json(eval_, found);
  const std::string recipe = found.sensitivity->proposal ? found.sensitivity->proposal->recipe : "";
  print(json, sensitivity_text(*found.sensitivity, most_rows()));
  write_files(found, recipe.empty() ? "" : output_recipe_, recipe, diagnostics);
  if (sensitivity_.needs_recipe && recipe.empty())
    throw GateMissed("no recipe: with FP8 in the least sensitive layer alone the mean KL is over " +
                     fixed("%g", *sensitivity_.kl_budget));
  return {json, {}, recipe};
}

std::string lines_of(const std::vector<std::string>& missed) {
  return "gate missed: " + join(missed, "\ngate missed: ");
}

void EvalCommand::run() {
  settle();
  if (options.is_given("--texts") && report_.page.empty())
    fail_usage("--texts is for --html, which is not given");
  report_.overwrite = overwrite_;
  check_outputs();
  TerminalDiagnostics diagnostics;
  choose_dataset(diagnostics);
  const Evaluated evaluated = (this->*kTasks.at(task_))(diagnostics);
  if (!evaluated.missed.empty()) throw GateMissed(lines_of(evaluated.missed));
}

Json EvalCommand::call(Diagnostics& diagnostics) {
  is_call_ = true;
  settle();
  choose_dataset(diagnostics);
  Evaluated evaluated = (this->*kTasks.at(task_))(diagnostics);
  if (!evaluated.recipe.empty()) evaluated.json["recipe"] = evaluated.recipe;
  if (!evaluated.missed.empty()) evaluated.json["problem"] = lines_of(evaluated.missed);
  return evaluated.json;
}

}  // namespace

const MakeSubcommand kEval = make_subcommand<EvalCommand>;

}  // namespace kvcal
