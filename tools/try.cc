#include "run/trial.h"

#include <algorithm>
#include <iostream>

#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "export/checkpoint_copy.h"
#include "hub/hub_cache.h"
#include "kvcal_version.h"
#include "run/calibration_result.h"
#include "run/scored_scales.h"
#include "shared_options.h"
#include "terminal/progress.h"
#include "terminal/session.h"

namespace kvcal {
namespace {

struct TryOptions {
  CalibrateRequest request = trial_request();
  std::string model;  ///< as given
  bool json = false, fp8_only = false;
};

/// The name for an output: "./MODEL-FP8-KV" where none was given.
std::string output_name(const TryOptions& options) {
  const std::string& output = options.request.output.output;
  if (!output.empty()) return output;
  fs::path model = shortened(fs::absolute(options.request.model));
  if (!model.has_filename()) model = model.parent_path();
  return "./" + model.filename().string() + "-FP8-KV";
}

/// An overlay as a checkpoint of nothing but scales, and the files that declare them, which is all
/// that engines' rules look at.
WrittenFolder as_checkpoint(const WrittenFolder& overlay) {
  const fs::path folder = overlay.path.parent_path() / "served";
  fs::create_directory(folder);
  for (const fs::path& file : paths_in(overlay.path))
    if (file.filename() != kIndexFileName)
      kvcal::copy_file(
          file, folder / (file.filename() == kScalesFileName ? kSingleFileName : file.filename()));
  return {.format = overlay.format, .path = folder};
}

/// The engines that use the scales, with the commands that serve the output by its name.
std::vector<ServedEngine> engines_of(const TryOptions& options, const Trial& trial,
                                     Diagnostics& diagnostics) {
  std::vector<WrittenFolder> folders = trial.result.output.folders;
  for (WrittenFolder& folder : folders)
    if (folder.is_overlay && is_there(folder.path / kScalesFileName))
      folder = as_checkpoint(folder);
  std::vector<ServedEngine> engines =
      engines_served(folders, trial.result.config, true, options.request.model,
                     options.request.output, diagnostics);
  std::erase_if(engines,
                [](const ServedEngine& one) { return one.outcome != LoadOutcome::kLoaded; });
  const std::string name = shell_word(output_name(options));
  for (ServedEngine& engine : engines)
    for (const WrittenFolder& folder : folders)
      engine.note = replaced(engine.note, shell_word(folder.path.string()), name);
  return engines;
}

/// Whether the calibrated scales may be served, by what was found.
bool may_serve(const TrialFindings& found) {
  return found.calibrated.damage != Damage::kDoNotServe && advice_of(found) != TrialAdvice::kUnit;
}

/// The lines that make and serve what was found fit for it. calibrate: empty: the scales are kept.
void print_serving(const TryOptions& options, const std::string& calibrate,
                   const TrialFindings& found, const std::vector<ServedEngine>& engines) {
  if (advice_of(found) == TrialAdvice::kUnit)
    std::cout << "serve it:  " << unit_serve_line(options.model) << '\n';
  if (!may_serve(found)) return;
  if (!calibrate.empty()) std::cout << "make it:  " << calibrate << '\n';
  for (const ServedEngine& engine : engines)
    std::cout << engine.title << ":  " << engine.note << '\n';
}

void print_trial(const TryOptions& options, const Trial& trial, Diagnostics& diagnostics) {
  const CalibrateRequest& request = options.request;
  const bool is_kept = !request.output.output.empty();
  const std::string output = output_name(options);
  const std::string calibrate =
      is_kept ? "" : calibrate_line(request, options.model) + " -o " + shell_word(output);
  const TrialFindings found = findings_of(trial);
  const std::vector<ServedEngine> engines = engines_of(options, trial, diagnostics);
  const std::vector<Remedy> remedies = remedies_of(trial, request, options.model, output);
  if (options.json) {
    Json json = to_json(trial);
    json["model"] = options.model;
    json["engines"] = Json::array();
    if (may_serve(found))
      for (const ServedEngine& engine : engines)
        json["engines"].push_back({{"engine", engine.title}, {"serve", engine.note}});
    if (may_serve(found) && !is_kept) json["calibrate"] = calibrate;
    if (advice_of(found) == TrialAdvice::kUnit) json["serve"] = unit_serve_line(options.model);
    json["remedies"] = to_json(remedies);
    std::cout << dump_json(json);
    return;
  }
  std::cout << labelled_text(trial_lines(trial, is_verbose())) << '\n';
  if (!trial.measured.caches.empty()) std::cout << caches_text(trial.measured.caches) << '\n';
  print_serving(options, calibrate, found, engines);
  std::cout << remedies_text(remedies);
}

void run_try(TryOptions options) {
  CalibrateRequest& calibration = options.request;
  calibration.version = KVCAL_VERSION;
  calibration.state.folder = StateOptions::kNone;  // try has no --resume
  options.model = name_of_source(calibration.model);
  calibration.score.every_cache = !options.fp8_only;
  RankSession session({});
  if (!session.is_alone())
    fail_usage("try runs in one process; kvcal calibrate runs on several ranks");
  TerminalDiagnostics diagnostics;
  const TrialSteps steps{
      .estimated =
          [&](const CalibrationPreview& preview) {
            diagnostics.inform(estimate_text(preview.seconds, preview.busy_seconds) + ": " +
                               counted(preview.num_samples, "sample") + ", " +
                               counted(preview.num_tokens, "token") + ", and " +
                               counted(calibration.score.num_sequences, "sequence") +
                               " to measure, on " + preview.device);
          },
      .done = [&](const Trial& trial) { print_trial(options, trial, diagnostics); }};
  set_steps({"tokenizing", "calibrating", "eval"});
  try_model(options.request, session, diagnostics, steps);
  session.done();
}

class TryCommand : public Subcommand {
 public:
  TryCommand();
  void run() override { run_try(asked_); }

 private:
  TryOptions asked_;
};

TryCommand::TryCommand()
    : Subcommand("try",
                 "Find out what an FP8 KV cache costs a model and whether calibrated scales help",
                 {{"On this machine, with texts of the program", "kvcal try Qwen/Qwen3-0.6B"},
                  {"With your own data, and the checkpoint is kept",
                   "kvcal try MODEL --dataset chats.jsonl -o FP8-KV"}}) {
  CalibrateRequest& calibration = asked_.request;
  declare_model(options, "model", calibration.model,
                "Hugging Face model: a folder, or an id of the hub, owner/name[@revision]")
      .required();
  options.group(kModelAndData);
  declare_dataset(options, "--dataset", calibration.dataset,
                  "Text to calibrate and measure with, as of calibrate; default: calibration");
  declare_records(options, calibration.records);
  options.number("--num-samples", calibration.samples.num_calibration_samples,
                 "Samples to calibrate with", 1, kMostSamples);
  declare_family(options, calibration.family);
  declare_recipe(options, calibration.recipe);
  options.group(kCacheAndScales);
  options.number("--kl-budget", calibration.kl_budget,
                 "Mean KL that the cache may cost (nats): proposes the fewest layers to leave in "
                 "16 bits",
                 0.0, kMostKl);
  options.group(kOutput);
  options
      .text("-o,--output", calibration.output.output,
            "Also keep the checkpoint, in this folder; else nothing is kept")
      .written(ValueKind::kFolder);
  declare_overwrite(options, calibration.output.overwrite, "Replace an existing output");
  options.group(kAccuracy);
  options.number("--measure-sequences", calibration.score.num_sequences,
                 "Other records to measure, of 512 tokens at most", 1, kMostSamples);
  options.flag("--fp8-only", asked_.fp8_only,
               "Measure FP8 alone, not every cache that engines offer: less work");
  declare_device(options, calibration.device, false);
  declare_json(options, asked_.json, "Print JSON instead of text");
  declare_verbosity(options);
}

}  // namespace

const MakeSubcommand kTry = make_subcommand<TryCommand>;

}  // namespace kvcal
