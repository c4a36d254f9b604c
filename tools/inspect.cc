#include "engines/engine_verdicts.h"
#include "inspect/page_values.h"

#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/text.h"
#include "descriptors/family_file.h"
#include "engines/engine_rules.h"
#include "inspect/family_list.h"
#include "inspect/inspection.h"
#include "inspect/verification.h"
#include "kvcal_version.h"
#include "quant/cache_type.h"
#include "shared_options.h"
#include "terminal/progress.h"
#include "terminal/session.h"

// What is known of a checkpoint, of engines and of families, without running a model: inspect,
// verify, engines, families.

namespace kvcal {
namespace {

class InspectCommand : public Subcommand {
 public:
  InspectCommand();
  void run() override {
    in_name_of(checkpoint_, [&] { print(); });
  }
  Json call(Diagnostics& diagnostics) override;

 private:
  void warn_of(const InspectionResult& found, Diagnostics& diagnostics) const;
  void print() const;

  CheckpointSource checkpoint_;
  FamilyChoice family_;
  bool json_ = false, tensors_ = false;
  ReportFiles drawn_;
};

InspectCommand::InspectCommand()
    : Subcommand(
          "inspect",
          "Show the architecture, who supports it, and the scales and sizes of every layer",
          {{"Architecture, size of the cache and scales of a checkpoint", "kvcal inspect FP8-KV"},
           {"The same as a page", "kvcal inspect FP8-KV --html report.html"}}) {
  python = {
      "inspect", "dict[str, Any]",
      R"(Architecture, sizes, scales and support of a checkpoint, as `kvcal inspect --json` prints them.

tensors: also lists every tensor. `layer_statistics` makes arrays of the layers.)"};
  declare_checkpoint(options, checkpoint_, /*offline_config=*/true,
                     "Model folder, with or without scales, a config.json alone, or an id of the "
                     "hub, of which headers and scales alone are fetched");
  declare_family(options, family_);
  options.group(kOutput);
  options.flag("--overwrite", drawn_.overwrite, "Replace what --html and --plots name")
      .program_only();
  declare_report(options, drawn_);
  options.flag("--tensors", tensors_, "List every tensor: role, dtype and shape");
  declare_json(options, json_, "Print JSON instead of tables");
  declare_verbosity(options);
}

void InspectCommand::warn_of(const InspectionResult& found, Diagnostics& diagnostics) const {
  for (const std::string& warning : found.quantization.warnings)
    diagnostics.warn(checkpoint_.name + ": " + checkpoint_.named(warning));
}

void InspectCommand::print() const {
  TerminalDiagnostics diagnostics;
  check_report_files(drawn_);
  const InspectionResult result(checkpoint_.path, {}, family_);
  check_report_files(drawn_, result.model_dir);
  warn_of(result, diagnostics);
  if (drawn_.is_asked_for()) {
    const report::CheckpointReport page = page_values(result, KVCAL_VERSION);
    write_report_files(drawn_, checkpoint_.named(checkpoint_page(page)), checkpoint_plots(page),
                       diagnostics);
  }
  if (json_) {
    std::cout << dump_json(checkpoint_.named(inspection_json(result, tensors_)));
    return;
  }
  std::cout << checkpoint_.named(inspection_text(result, has_unicode(), is_verbose()));
  if (tensors_) std::cout << tensors_text(result.tensors);
}

Json InspectCommand::call(Diagnostics& diagnostics) {
  Json json;
  in_name_of(checkpoint_, [&] {
    const InspectionResult found(checkpoint_.path, {}, family_);
    warn_of(found, diagnostics);
    json = checkpoint_.named(inspection_json(found, tensors_));
  });
  return json;
}

class VerifyCommand : public Subcommand {
 public:
  VerifyCommand();
  void run() override {
    in_name_of(checkpoint_, [&] { print(); });
  }
  Json call(Diagnostics& diagnostics) override;

 private:
  void print() const;
  void print_text(const std::vector<VerifyReport>& reports, const std::string& verdict) const;

  CheckpointSource checkpoint_;
  std::vector<std::string> engines_;
  VerifyOptions asked_;
  bool allow_16_bit_ = false, json_ = false;
};

/// One of all spellings of a dtype. "fp8" stays: it is each engine's usual FP8. Words that are none
/// stay for the check behind.
std::string one_spelling(const std::string& word) {
  try {
    return word == "fp8" ? word : std::string(name_of(parse_kv_dtype(word)));
  } catch (const Error&) {
    return word;
  }
}

VerifyCommand::VerifyCommand()
    : Subcommand("verify", "Tell what serving engines would make of a checkpoint's KV scales",
                 {{"Whether an engine uses every scale; exit status 1 where it does not",
                   "kvcal verify FP8-KV --engine vllm --engine sglang"},
                  {"What an engine would be told",
                   "kvcal verify FP8-KV --engine tgi --kv-cache-dtype fp8"}}) {
  python = {"verify", "Verification",
            "Tells which KV scales serving engines would load. Raises `CheckFailed` where one "
            "would lose or lack them."};
  declare_checkpoint(options, checkpoint_, /*offline_config=*/false,
                     "Model folder, with or without scales, or an id of the hub, of which headers "
                     "and scales alone are fetched");
  declare_family(options, asked_.family);
  options.group(kCacheAndScales);
  Option& dtype =
      options
          .text(
              "--kv-cache-dtype",
              [this](const std::string& word) { asked_.kv_cache_dtype = one_spelling(word); },
              "What the engine is told: auto, fp8, fp8_e4m3, fp8_e5m2, bfloat16 or "
              "float16")
          .only({"auto", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16"})
          .shown_default(asked_.kv_cache_dtype);
  dtype.check = [is_known = dtype.check](const std::string& word) {
    return is_known(one_spelling(word));
  };
  declare_skip_layers(options, asked_.skip_layers,
                      "Layers that the engine is told to leave in 16 bits, as 0,1");
  options
      .text(
          "--scales", [this](const std::string& path) { asked_.scales = path; },
          "A kv_cache_scales.json that the engine is given beside the checkpoint")
      .of_kind(ValueKind::kPath);
  options.flag("--allow-16-bit", allow_16_bit_,
               "Accept a checkpoint without scales; otherwise it is an error");
  options.group(kEngine);
  std::vector<std::string> names = engine_rules().names();
  const std::string help = join(names, ", ") + ", or all; may be given several times";
  names.insert(names.begin(), "all");
  options.list("--engine", engines_, help)
      .choices_of(names)
      .required()
      .python("engine", "Names", "\"all\"")
      .check = check_of([](const std::string& name) { engine_choice({name}); });
  options.flag("--rocm", asked_.is_rocm, "On a platform that stores E4M3 as FNUZ (MI300)");
  options.number("--tp-size", asked_.tp_size, "Tensor parallel ranks the engine runs", 1, 1024);
  declare_json(options, json_, "Print JSON instead of tables");
  declare_verbosity(options);
}

void VerifyCommand::print() const {
  const std::vector<VerifyReport> reports = verify(checkpoint_.path, engines_, asked_);
  const Verdict verdict = verdict_of(reports);
  const std::string problem = problem_of(verdict, asked_, allow_16_bit_);
  if (json_)
    std::cout << dump_json(checkpoint_.named(verification_json(reports, problem)));
  else
    print_text(reports, problem.empty() ? verdict_text(verdict) : problem);
  std::cout.flush();
  if (!problem.empty()) fail(checkpoint_.name, ": ", problem);
}

void VerifyCommand::print_text(const std::vector<VerifyReport>& reports,
                               const std::string& verdict) const {
  std::cout << verdict << '\n';
  if (is_quiet()) return;
  for (const VerifyReport& report : reports)
    std::cout << checkpoint_.named(verification_text(report, checkpoint_.name, is_verbose()));
}

Json VerifyCommand::call(Diagnostics&) {
  std::vector<VerifyReport> reports;
  in_name_of(checkpoint_, [&] { reports = verify(checkpoint_.path, engines_, asked_); });
  Json result{{"reports", Json::array()}};
  for (const VerifyReport& report : reports)
    result["reports"].push_back(checkpoint_.named(report_json(report)));
  const Verdict verdict = verdict_of(reports);
  result["holding"] = verdict.holding;
  result["idle"] = verdict.idle;
  result["unknown"] = verdict.unknown;
  const std::string problem = problem_of(verdict, asked_, allow_16_bit_);
  if (!problem.empty()) result["problem"] = checkpoint_.name + ": " + problem;
  return result;
}

class EnginesCommand : public Subcommand {
 public:
  EnginesCommand()
      : Subcommand("engines", "List the serving engines, or which formats they read for a family",
                   {{"The engines and their versions", "kvcal engines"},
                    {"What each of them reads for Qwen 3", "kvcal engines qwen3"}}) {
    options.text("model_type", model_type_, "model_type of config.json, as qwen3")
        .may_be_empty()
        .excludes({"--markdown"});
    options.group(kOutput);
    options.flag("--markdown", markdown_, "Print the table that docs/models.md holds")
        .excludes({"--json"});
    declare_json(options, json_, "Print JSON instead of text");
  }
  void run() override {
    std::cout << (markdown_ ? engines_markdown()
                  : json_   ? dump_json(engines_json(model_type_))
                            : engines_text(model_type_));
  }

 private:
  std::string model_type_;
  bool markdown_ = false, json_ = false;
};

class FamiliesCommand : public Subcommand {
 public:
  FamiliesCommand()
      : Subcommand("families",
                   "List the model families, their variations, and what is refused by name",
                   {{"Whether kvcal runs some models", "kvcal families llama qwen3_moe mamba2"},
                    {"A description of a new model to start from",
                     "kvcal families --template llama >family.yaml"}}) {
    options
        .list("MODEL_TYPE", types_,
              "Say of each whether it runs, is a wrapper, is refused, or is unknown")
        .excludes({"--template"});
    options.group(kOutput);
    options
        .text(
            "--template", [this](const std::string& name) { templated_ = name; },
            "Print a file for --family-file with comments: one to start from, or that of a family "
            "by its name")
        .may_be_empty()
        .excludes({"--markdown", "--json"})
        .may_lack_value = true;
    options.flag("--markdown", markdown_, "Print the table that docs/models.md holds")
        .excludes({"--json"});
    declare_json(options, json_, "Print JSON instead of text");
  }
  void run() override { std::cout << text(); }

 private:
  std::string text() const {
    if (templated_) return template_text();
    if (json_) return dump_json(types_.empty() ? families_json() : model_types_json(types_));
    if (markdown_) return types_.empty() ? families_markdown() : model_types_markdown(types_);
    return types_.empty() ? families_text() : model_types_text(types_);
  }
  /// The start of a file for --family-file, or the file of a built-in family.
  std::string template_text() const {
    if (templated_->empty()) return empty_family_template();
    return family_template(
        *in_context("--template", [&] { return choose_family(*templated_); }).architecture);
  }

  std::vector<std::string> types_;
  bool markdown_ = false, json_ = false;
  std::optional<std::string> templated_;  ///< name of a family; empty: none of its own
};

}  // namespace

const MakeSubcommand kInspect = make_subcommand<InspectCommand>;
const MakeSubcommand kVerify = make_subcommand<VerifyCommand>;
const MakeSubcommand kEngines = make_subcommand<EnginesCommand>;
const MakeSubcommand kFamilies = make_subcommand<FamiliesCommand>;

}  // namespace kvcal
