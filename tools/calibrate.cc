#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "datasets/named_dataset.h"
#include "hub/hub_cache.h"
#include "inspect/page_values.h"
#include "kvcal_version.h"
#include "ranks/communicator.h"
#include "run/calibrate_checkpoint.h"
#include "run/calibration_preview.h"
#include "run/calibration_result.h"
#include "run/command_paths.h"
#include "run/devices.h"
#include "run/kl_budget.h"
#include "run/sample_preview.h"
#include "run/scored_scales.h"
#include "shared_options.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

void say(const std::string& message) {
  std::cerr << "error: " + shown_message(message) + "\n";
}

/// Runs body on every rank that a launcher started, or alone. Errors of a run alone leave it; those
/// of several ranks are printed once, and RunEnded leaves it on every rank.
void with_ranks(const RankSettings& settings, const std::function<void(RankSession&)>& body) {
  RankSession session({.timeout = std::chrono::duration<double>(settings.timeout), .say = say});
  if (session.is_alone()) {
    body(session);
    return session.done();
  }
  try {
    body(session);
    session.done();
  } catch (const InterruptedRun& interrupted) {
    if (session.is_first()) std::cerr << shown_message(interrupted.what()) << '\n';
    throw RunEnded(session.interrupted());
  } catch (const Interrupted&) {
    throw RunEnded(session.interrupted());
  } catch (const NotFinite& error) {
    throw RunEnded(session.failed(SharedError(error.message())));  // all ranks have come to it
  } catch (const Error& error) {
    throw RunEnded(session.failed(error));
  } catch (const std::bad_alloc&) {
    throw RunEnded(session.failed(Error("out of memory")));
  }
}

/// Draws what is in folder, which is not at its place yet.
size_t stage_report(const CalibrateRequest& request, const CalibrationResult& result,
                    const fs::path& folder, StagedOutputs& outputs) {
  if (!request.report.is_asked_for()) return 0;
  const auto page = page_values(folder, request.output.output, request.model, KVCAL_VERSION,
                                result.config.chosen);
  const auto plots = checkpoint_plots(page);
  stage_report_files(request.report, checkpoint_page(page), plots, outputs);
  return plots.size();
}

/// Draws page and plots again, of an output whose manifest has changed.
void redraw_report(const CalibrateRequest& request, const CalibrationResult& result) {
  CalibrateRequest again = request;
  again.report.overwrite = true;
  StagedOutputs outputs;
  stage_report(again, result, request.output.output, outputs);
  outputs.commit();
}

class CalibrateCommand : public Subcommand {
 public:
  CalibrateCommand();
  void run() override;
  Json call(Diagnostics& diagnostics) override;

 private:
  void declare_data();
  void declare_recipe_options();
  void declare_cache_options();
  void declare_output_options();
  void declare_machine();
  void declare_state();
  /// Fills what follows from several options.
  void settle();
  void warn_unscored(Diagnostics& diagnostics) const;
  void run_dry() const;
  void show_samples() const;
  std::vector<ServedEngine> engines_of(const CalibrationResult& result,
                                       Diagnostics& diagnostics) const;
  std::vector<ServedEngine> print_result(const CalibrationResult& result) const;
  void print_scored(CalibrationResult& result, const std::vector<ServedEngine>& engines) const;

  CalibrateRequest request_;
  std::optional<int64_t> num_shown_;
  bool measures_ = false, json_ = false, is_dry_run_ = false;
};

void CalibrateCommand::declare_data() {
  declare_model(options, "model", request_.model,
                "Hugging Face model: a folder, or an id of the hub, owner/name[@revision]")
      .required();
  options.group(kModelAndData);
  declare_dataset(options, "--dataset", request_.dataset,
                  "JSONL, JSON, CSV, text, a table, a folder or pattern of them, an id of the hub, "
                  "or a name (" +
                      join(dataset_names(), ", ") + "); default: calibration, 132 chats of ours");
  options.text("--dataset-name", request_.dataset_name, "Of data in memory").internal();
  declare_records(options, request_.records);
  options
      .number("--num-samples", request_.samples.num_calibration_samples, "Samples to use", 1,
              kMostSamples)
      .old_name("--num-calibration-samples");
  options.number("--max-seq-length", request_.samples.max_seq_length, "Tokens a sample is cut at",
                 1, int64_t{1} << 30);
  options.number("--shuffle-seed", request_.samples.shuffle_seed,
                 "Order of Hugging Face Dataset.shuffle(seed)", 0, UINT64_MAX);
  declare_family(options, request_.family);
}

void CalibrateCommand::declare_recipe_options() {
  declare_recipe(options, request_.recipe);
  options
      .text("--kv-forward", request_.kv_forward,
            "What later layers see of K and V: quantized or exact")
      .choices_of({"quantized", "exact"});
  options.flag("--moe-all-experts", request_.all_experts,
               "Show every expert all tokens when inputs are calibrated");
  options.flag("--no-mtp", request_.no_mtp,
               "Leave out the multi-token prediction layer that engines run as a draft");
  options.number_text("--stop-when-stable", request_.stable_ratio,
                      "End when no scale has moved by more than this part of itself, such as 0.01 "
                      "or 1%, in the last --stable-samples; --num-samples is the most",
                      parse_fraction, "float | str");
  options
      .number("--stable-samples", request_.stable_samples,
              "Samples over which scales must stay, and between two looks at them", 1, kMostSamples)
      .needs("--stop-when-stable");
}

void CalibrateCommand::declare_cache_options() {
  declare_scaled_cache(options, request_.output);
  declare_skip_layers(options, request_.skip_layers,
                      "Layers whose cache keeps 16 bits, beside those that the recipe ignores, as "
                      "0,1");
  options.number("--kl-budget", request_.kl_budget,
                 "Mean KL against 16 bits that the cache may cost (nats): leaves the fewest layers "
                 "in 16 bits that keep it, as measured on records of the data set that the "
                 "calibration has not used",
                 0.0, kMostKl);
  options.flag("--smooth", request_.smooths,
               "First rewrite the weights, of the same function, so that an fp8_e4m3 cache loses "
               "less of K, as kvcal smooth --for fp8_e4m3 does");
  declare_scale_options(options, request_.output, request_.headroom);
}

void CalibrateCommand::declare_output_options() {
  declare_engine(options, request_.output);
  declare_output(options, request_.output.output).required();
  declare_format(options, request_.output, format_help());
  declare_scales_only(options, request_.output);
  declare_overwrite(options, request_.output.overwrite);
  done = std::make_unique<DoneOutput>(options, request_.output.output, request_.output.overwrite);
  declare_card(options, request_.output.card);
  options
      .text("--save-statistics", request_.save_statistics,
            "File to keep everything seen in, for kvcal scales; needs --kv-forward exact")
      .written(ValueKind::kFile);
  options.flag("--reproducible", request_.reproducible,
               "Leave device, seconds and peak memory out of the manifest, and time no algorithms");
  declare_report(options, request_.report);
  options.group(kAccuracy);
  options.flag("--measure", measures_,
               "Then measure KL and perplexity of the scales and of scale 1.0 against 16 bits, on "
               "records of the data set that the calibration has not used");
  options.number("--measure-sequences", request_.score.num_sequences,
                 "Sequences to measure, of 512 tokens at most", 1, kMostSamples);
}

void CalibrateCommand::declare_machine() {
  declare_device(options, request_.device, true);
  options.number("--batch-tokens", request_.batch_tokens,
                 "Tokens that go through a layer together; 0: as the device likes", 0,
                 int64_t{1} << 30);
  options.number_text("--memory-limit", request_.memory_limit,
                      "Of the process, such as 8GiB; of a GPU, its memory. Hidden states past it "
                      "go to a scratch file, of a GPU to pinned host memory",
                      parse_byte_size, "int | str");
}

void CalibrateCommand::declare_state() {
  options.group(kRanks);
  options
      .text("--state", request_.state.folder,
            "Folder that keeps how far the run is; none: nothing is kept [OUTPUT" +
                std::string(StateOptions::kBesideOutput) + "]")
      .written(ValueKind::kFolder);
  options
      .number_text("--state-share", request_.state.share,
                   "Part of the run's time that keeping it may take, such as 0.03 or 3%",
                   parse_fraction, "float | str")
      .program_only();
  options.flag("--resume", request_.state.resumes,
               "Go on where an earlier run of this command ended, if its state is there");
  options
      .text("--weights", request_.ranks.weights,
            "Of several MPI ranks, where each has the weights from: shared (one machine's files), "
            "exchange (each reads a part and sends it), local (each reads all); auto measures")
      .choices_of({"auto", "shared", "exchange", "local"})
      .program_only();
  options
      .number("--rank-timeout", request_.ranks.timeout,
              "Seconds after which an MPI rank that does not answer ends the run", 1.0, 1e7)
      .program_only();
}

CalibrateCommand::CalibrateCommand()
    : Subcommand(
          "calibrate", "Quantize as a recipe says: FP8 scales of K and V, weights and activations",
          {{"The default recipe and data set", "kvcal calibrate Qwen/Qwen3-0.6B -o Qwen3-FP8-KV"},
           {"FP8 weights too, with 128 samples of your own data",
            "kvcal calibrate MODEL --recipe fp8_w8a8_kv --dataset chats.jsonl \\\n"
            "      --num-samples 128 -o W8A8-KV"},
           {"What SGLang reads for this model, measured against scale 1.0",
            "kvcal calibrate MODEL --for sglang --measure -o FP8-KV"}}) {
  python = {
      "calibrate", "Output",
      R"(Runs data through the model, makes scales as the recipe says and writes the checkpoint.

recipe: a file or a name; default: `fp8_kv_tensor`. dataset: a path, a name or an id of the hub; or an iterable of
texts, conversations (lists of {"role", "content"}), lists of token ids, or records as JSON lines have them;
default: the texts of the program. images: in its place pictures for a multimodal model, as `python -m kvcal.images`
takes them (needs kvcal[images]). text_column and the others: columns of a data set whose records are not
recognized. num_samples: how many are used at most. format: one or several of the program's
formats; engine: engines that must use the scales, instead of a format. measure: also measures KL and perplexity.
kl_budget: leaves the fewest layers in 16 bits that keep the mean KL within it, else raises `Error` and writes nothing.
smooth: rewrites the weights first, of the same function, so that an fp8_e4m3 cache loses less of K. The other arguments are the options of `kvcal calibrate`.)",
      "    images: Path | None = None,\n"};
  declare_data();
  declare_recipe_options();
  declare_cache_options();
  declare_output_options();
  declare_machine();
  declare_state();
  options.group(kPrinting);
  options
      .flag("--dry-run", is_dry_run_,
            "Print samples, time, memory and disk that the run would take, and write nothing")
      .frees("--output")
      .program_only();
  options
      .number("--show-samples", num_shown_,
              "Print so many samples as the model would get them, with the lengths of all, and run "
              "nothing",
              1, 1000)
      .frees("--output")
      .excludes({"--dry-run"})
      .program_only();
  declare_json(options, json_, "Print the manifest instead of a table");
  declare_verbosity(options);
}

std::vector<ServedEngine> CalibrateCommand::engines_of(const CalibrationResult& result,
                                                       Diagnostics& diagnostics) const {
  return engines_served(result.output.folders, result.config, !result.calibration.layers.empty(),
                        request_.model, request_.output, diagnostics);
}

/// Returns the answers of engines for the output.
std::vector<ServedEngine> CalibrateCommand::print_result(const CalibrationResult& result) const {
  TerminalDiagnostics diagnostics;
  const std::vector<ServedEngine> engines = engines_of(result, diagnostics);
  warn_of_scales(result.output, diagnostics);
  const bool is_printed_later = json_ && measures_ && result.summary;
  if (is_printed_later) return engines;
  const std::vector<Remedy> remedies =
      measures_ ? std::vector<Remedy>()
                : predicted_remedies(request_, name_of_source(request_.model), result);
  WrittenOutput shown = result.output;
  if (!remedies.empty()) shown.manifest["remedies"] = to_json(remedies);
  print_output(shown, engines, request_.output, json_, [&] {
    std::cout << calibration_text(result, is_verbose());
    if (result.cost && is_verbose())
      std::cout << device_work_text(result.cost->products, result.cost->parts);
    if (result.stop) std::cout << stop_text(*result.stop);
  });
  if (!json_ && !is_quiet()) std::cout << remedies_text(remedies);
  return engines;
}

/// Measures and prints what was written; with --json also the manifest, as one object.
void CalibrateCommand::print_scored(CalibrationResult& result,
                                    const std::vector<ServedEngine>& engines) const {
  TerminalDiagnostics diagnostics;
  const ScoredScales measured = score_scales(request_, result, diagnostics);
  const std::vector<Remedy> remedies =
      keep_scored(request_, name_of_source(request_.model), measured, result);
  redraw_report(request_, result);
  if (json_) {
    std::cout << dump_json(manifest_with_outputs(result.output, engines));
  } else {
    std::cout << labelled_text(scored_lines(measured)) << remedies_text(remedies);
  }
}

void CalibrateCommand::run_dry() const {
  TerminalDiagnostics diagnostics;
  const int num_scored = (measures_ ? 3 : 0) + (request_.kl_budget ? kBudgetModels : 0);
  const CalibrationPreview preview = preview_calibration(request_, num_scored, diagnostics);
  if (json_)
    std::cout << dump_json(to_json(preview));
  else
    std::cout << labelled_text(preview_lines(preview));
  std::cout.flush();
  check_room(request_.output.output, preview.disk_bytes());
}

void CalibrateCommand::show_samples() const {
  TerminalDiagnostics diagnostics;
  const SamplePreview preview = preview_samples(request_, *num_shown_, diagnostics);
  std::cout << (json_ ? dump_json(to_json(preview)) : sample_text(preview));
}

void CalibrateCommand::settle() {
  const bool has_budget = request_.kl_budget.has_value();
  if (options.is_given("--measure-sequences") && !measures_ && !has_budget)
    fail_usage(options.shown("--measure-sequences"), " is for ", options.shown("--measure"),
               " and ", options.shown("--kl-budget"));
  if ((measures_ || has_budget) && !options.is_given("--num-samples"))
    request_.num_held_out = request_.score.num_sequences;
  request_.is_measured = measures_;
  request_.version = KVCAL_VERSION;
}

/// Tells where --measure has no effect.
void CalibrateCommand::warn_unscored(Diagnostics& diagnostics) const {
  diagnostics.warn(options.shown("--measure") +
                   ": the recipe calibrates no cache, so nothing is measured");
}

void CalibrateCommand::run() {
  settle();
  if (is_dry_run_) return run_dry();
  if (num_shown_) return show_samples();
  request_.report.overwrite = request_.output.overwrite;
  request_.resume_command = resuming_command_line();
  request_.times_parts = is_verbose() && !json_;
  std::vector<ServedEngine> engines;        // on the rank that writes
  std::optional<CalibrationResult> result;  // there, too
  size_t num_plots = 0;
  set_steps(measures_ ? std::vector<std::string>{"tokenizing", "calibrating", "eval"}
                      : std::vector<std::string>{"tokenizing", "calibrating"});
  with_ranks(request_.ranks, [&](RankSession& session) {
    TerminalDiagnostics diagnostics;
    const auto on_staged = [&](const CalibrationResult& staged, const fs::path& folder,
                               StagedOutputs& outputs) {
      num_plots = stage_report(request_, staged, folder, outputs);
    };
    const auto on_written = [&](const CalibrationResult& written) {
      tell_report_files(request_.report, num_plots, diagnostics);
      if (!written.shares.empty() && !is_quiet()) std::cerr << shares_text(written.shares);
      engines = print_result(written);
      if (!measures_) return;
      if (written.summary)
        result = written;
      else
        warn_unscored(diagnostics);
    };
    try {
      calibrate_checkpoint(request_, session, diagnostics,
                           {.staged = on_staged, .written = on_written});
    } catch (const BudgetMissed& missed) {
      throw GateMissed("gate missed: " + missed.message());
    }
  });
  if (result) print_scored(*result, engines);
  check_engines_asked(engines, request_.output);
}

Json CalibrateCommand::call(Diagnostics& diagnostics) {
  settle();
  request_.resume_command = "the same call with resume=True";
  std::optional<CalibrationResult> result;
  // A process has one MPI, which is the caller's.
  RankSession session({.ignores_launcher = true});
  calibrate_checkpoint(request_, session, diagnostics,
                       {.written = [&](const CalibrationResult& written) { result = written; }});
  session.done();
  warn_of_scales(result->output, diagnostics);
  Json json = output_json(result->output, engines_of(*result, diagnostics), request_.output);
  if (measures_ && !result->summary) warn_unscored(diagnostics);
  if (!measures_ || !result->summary) return json;
  const ScoredScales measured = score_scales(request_, *result, diagnostics);
  keep_scored(request_, name_of_source(request_.model), measured, *result);
  json["manifest"] = result->output.manifest;
  json["measured"] = to_json(measured);
  return json;
}

}  // namespace

const MakeSubcommand kCalibrate = make_subcommand<CalibrateCommand>;

}  // namespace kvcal
