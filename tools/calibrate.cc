#include <iostream>

#include "core/join.h"
#include "core/number_text.h"
#include "datasets/named_dataset.h"
#include "hub/hub_cache.h"
#include "input_options.h"
#include "inspect/page_values.h"
#include "kvcal_version.h"
#include "options.h"
#include "ranks/agreement.h"
#include "run/calibrate_checkpoint.h"
#include "run/calibration_preview.h"
#include "run/calibration_text.h"
#include "run/device_work.h"
#include "run/kl_budget.h"
#include "run/measured_scales.h"
#include "run/remedies.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

struct CalibrateOptions {
  CalibrateRequest request;
  MeasureOptions measure;
  bool measures = false, json = false, is_dry_run = false, has_num_samples = false;
  bool has_measure_sequences = false;
};

void add_state_options(CLI::App& command, StateOptions& options) {
  add_text(command, "--state", options.folder,
           "Folder that keeps how far the run is; none: nothing is kept [OUTPUT" +
               std::string(StateOptions::kBesideOutput) + "]");
  add_number_text(command, "--state-share", options.share,
                  "Part of the run's time that keeping it may take, such as 0.03 or 3%",
                  parse_fraction)
      ->capture_default_str();
  command.add_flag("--resume", options.resumes,
                   "Go on where an earlier run of this command ended, if its state is there");
}

void add_rank_options(CLI::App& command, RankSettings& settings) {
  command
      .add_option("--weights", settings.weights,
                  "Of several MPI ranks, where each has the weights from: shared (one machine's "
                  "files), exchange (each reads a part and sends it), local (each reads all); auto "
                  "measures")
      ->capture_default_str()
      ->check(is_not_empty());
  add_number(command, "--rank-timeout", settings.timeout,
             "Seconds after which an MPI rank that does not answer ends the run", 1.0, 1e7);
}

void add_forward_options(CLI::App& command, CalibrateRequest& options) {
  add_skip_layers_option(command, options.skip_layers,
                         "Layers whose cache keeps 16 bits, beside those that the recipe ignores, "
                         "as 0,1");
  add_setting(command, "--kv-forward", options.kv_forward,
              "What later layers see of K and V: quantized or exact");
  add_headroom_option(command, options.headroom);
  command.add_flag("--moe-all-experts", options.all_experts,
                   "Show every expert all tokens when inputs are calibrated");
  command.add_flag("--no-mtp", options.no_mtp,
                   "Leave out the multi-token prediction layer that engines run as a draft");
  add_text(command, "--save-statistics", options.save_statistics,
           "File to keep everything seen in, for kvcal scales; needs --kv-forward exact");
  CLI::Option* stop = add_number_text(
      command, "--stop-when-stable", options.stable_ratio,
      "End when no scale has moved by more than this part of itself, such as 0.01 or 1%, in the "
      "last --stable-samples; --num-samples is the most",
      parse_fraction);
  add_number(command, "--stable-samples", options.stable_samples,
             "Samples over which scales must stay, and between two looks at them", 1,
             int64_t{1} << 40)
      ->needs(stop);
  add_state_options(command, options.state);
  add_rank_options(command, options.ranks);
  add_device_options(command, options.device);
  add_inputs_option(command, options.device);
  add_number(command, "--batch-tokens", options.batch_tokens,
             "Tokens that go through a layer together; 0: as the device likes", 0,
             int64_t{1} << 30);
  add_number_text(command, "--memory-limit", options.memory_limit,
                  "Of the process, such as 8GiB; of a GPU, its memory. Hidden states past it go to "
                  "a scratch file, of a GPU to pinned host memory",
                  parse_byte_size);
}

void add_calibrate_options(CLI::App& command, CalibrateOptions& options) {
  add_model(command, "model", options.request.model,
            "Hugging Face model: a folder, or an id of the hub, owner/name[@revision]")
      ->required();
  add_recipe_option(command, options.request.recipe);
  add_dataset(command, "--dataset", options.request.dataset,
              "JSONL, JSON, CSV, text, a table, a folder or pattern of them, an id of the hub, or "
              "a name (" +
                  join(dataset_names(), ", ") + "); default: calibration, 132 chats of ours");
  add_record_options(command, options.request.records);
  add_family_options(command, options.request.family);
  CLI::Option* output = add_output_options(command, options.request.output)->required();
  command
      .add_flag("--dry-run", options.is_dry_run,
                "Print samples, time, memory and disk that the run would take, and write nothing")
      ->each([output](const std::string&) { output->required(false); })
      ->trigger_on_parse();
  add_report_options(command, options.request.report);
  command.add_flag(
      "--reproducible", options.request.reproducible,
      "Leave device, seconds and peak memory out of the manifest, and time no algorithms");
  command.add_flag("--json", options.json, "Print the manifest instead of a table");
  command.add_flag("--measure", options.measures,
                   "Then measure KL and perplexity of the scales and of scale 1.0 against 16 bits, "
                   "on records of the data set that the calibration has not used");
  add_number_to<double>(command, "--kl-budget", options.request.budget.kl,
                        "Mean KL against 16 bits that the cache may cost (nats): leaves the fewest "
                        "layers in 16 bits that keep it, as measured on records of the data set "
                        "that the calibration has not used",
                        0.0, kMostKl);
  command.add_flag("--smooth", options.request.smooths,
                   "First rewrite the weights, of the same function, so that an fp8_e4m3 cache "
                   "loses less of K, as kvcal smooth --for fp8_e4m3 does");
  add_number(command, "--measure-sequences", options.measure.num_sequences,
             "Sequences to measure, of 512 tokens at most", 1, int64_t{1} << 40)
      ->each([&options](const std::string&) { options.has_measure_sequences = true; });
  add_number(command, "--num-samples,--num-calibration-samples",
             options.request.samples.num_calibration_samples, "Samples to use", 1, int64_t{1} << 40)
      ->each([&options](const std::string&) { options.has_num_samples = true; });
  add_number(command, "--max-seq-length", options.request.samples.max_seq_length,
             "Tokens a sample is cut at", 1, int64_t{1} << 30);
  add_number_to<uint64_t>(command, "--shuffle-seed", options.request.samples.shuffle_seed,
                          "Order of Hugging Face Dataset.shuffle(seed)", 0, UINT64_MAX);
  add_forward_options(command, options.request);
}

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

/// Returns the answers of engines for the output.
std::vector<ServedEngine> print_result(const CalibrateOptions& options,
                                       const CalibrationResult& result) {
  const CalibrateRequest& request = options.request;
  TerminalDiagnostics diagnostics;
  const std::vector<ServedEngine> engines =
      engines_served(result.output.folders, result.config, !result.calibration.layers.empty(),
                     request.model, request.output, diagnostics);
  const bool is_printed_later = options.json && options.measures && result.summary;
  if (is_printed_later) return engines;
  const std::vector<Remedy> remedies =
      options.measures ? std::vector<Remedy>()
                       : predicted_remedies(request, name_of_source(request.model), result);
  WrittenOutput shown = result.output;
  if (!remedies.empty()) shown.manifest["remedies"] = to_json(remedies);
  print_output(shown, engines, options.json, [&] {
    std::cout << calibration_text(result, most_rows());
    if (result.cost && is_verbose())
      std::cout << device_work_text(result.cost->products, result.cost->parts);
    if (result.stop) std::cout << stop_text(*result.stop);
  });
  if (!options.json && !is_quiet()) std::cout << remedies_text(remedies);
  return engines;
}

/// Measures and prints what was written; with --json also the manifest, as one object.
void print_measured(const CalibrateOptions& options, CalibrationResult& result) {
  TerminalDiagnostics diagnostics;
  const MeasuredScales measured =
      measure_scales(options.request, result, options.measure, diagnostics);
  const std::vector<Remedy> remedies =
      keep_measured(options.request, name_of_source(options.request.model), measured, result);
  redraw_report(options.request, result);
  if (options.json)
    std::cout << dump_json(result.output.manifest);
  else
    std::cout << labelled_text(measured_lines(measured)) << remedies_text(remedies);
}

void run_dry(const CalibrateOptions& options) {
  TerminalDiagnostics diagnostics;
  ScoringWork scoring{.num_sequences = options.measure.num_sequences,
                      .max_seq_length = options.measure.max_seq_length,
                      .num_models = 0};
  if (options.measures) scoring.num_models += 3;
  if (options.request.budget.kl) scoring.num_models += kBudgetModels;
  if (scoring.num_models == 0) scoring = {};
  const CalibrationPreview preview = preview_calibration(options.request, scoring, diagnostics);
  if (options.json)
    std::cout << dump_json(to_json(preview));
  else
    std::cout << labelled_text(preview_lines(preview));
}

void run_calibrate(CalibrateOptions options) {
  const bool has_budget = options.request.budget.kl.has_value();
  if (options.has_measure_sequences && !options.measures && !has_budget)
    fail("--measure-sequences is for --measure and --kl-budget");
  options.request.budget.num_sequences = options.measure.num_sequences;
  options.request.budget.max_seq_length = options.measure.max_seq_length;
  if ((options.measures || has_budget) && !options.has_num_samples)
    options.request.num_held_out = options.measure.num_sequences;
  options.request.is_measured = options.measures;
  if (options.is_dry_run) return run_dry(options);
  CalibrateRequest& request = options.request;
  request.report.overwrite = request.output.overwrite;
  request.version = KVCAL_VERSION;
  request.resume_command = resuming_command_line();
  request.times_parts = is_verbose() && !options.json;
  std::vector<ServedEngine> engines;        // on the rank that writes
  std::optional<CalibrationResult> result;  // there, too
  size_t num_plots = 0;
  with_ranks(request.ranks, [&](RankSession& session) {
    TerminalDiagnostics diagnostics;
    const auto on_staged = [&](const CalibrationResult& staged, const fs::path& folder,
                               StagedOutputs& outputs) {
      num_plots = stage_report(request, staged, folder, outputs);
    };
    const auto on_written = [&](const CalibrationResult& written) {
      tell_report_files(request.report, num_plots, diagnostics);
      if (!written.shares.empty() && !is_quiet()) std::cerr << shares_text(written.shares);
      engines = print_result(options, written);
      if (!options.measures) return;
      if (written.summary)
        result = written;
      else
        diagnostics.warn("--measure: the recipe calibrates no cache, so nothing is measured");
    };
    try {
      calibrate_checkpoint(request, session, diagnostics,
                           {.staged = on_staged, .written = on_written});
    } catch (const BudgetMissed& missed) {
      throw GateMissed("gate missed: " + missed.message());
    }
  });
  if (result) print_measured(options, *result);
  check_engines_asked(engines, request.output);
}

}  // namespace

void add_calibrate(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Quantize as a recipe says: FP8 scales of K and V, weights and activations");
  add_calibrate_options(*command, *options);
  command->callback([options, &run] { run = [options] { run_calibrate(*options); }; });
}

}  // namespace kvcal
