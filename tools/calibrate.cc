#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "calib/quant_plan.h"
#include "calib/statistics.h"
#include "calibrate_options.h"
#include "calibrate_ranks.h"
#include "calibrate_state.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/process_memory.h"
#include "export/checkpoint_copy.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "inspect/page_values.h"
#include "kvcal_version.h"
#include "progress.h"
#include "table.h"

namespace kvcal {
namespace {

/// Seconds of each stage, by name.
class StageClock {
 public:
  void end(const std::string& stage) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[stage] = std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::map<std::string, double> seconds_;
};

/// The devices' descriptions, equal ones once.
std::string description_of(const std::vector<std::unique_ptr<Backend>>& backends) {
  std::vector<std::string> all;
  for (const auto& backend : backends) all.push_back(backend->description());
  if (all.size() > 1 && std::ranges::count(all, all[0]) == std::ssize(all))
    return std::to_string(all.size()) + " x " + all[0];
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "" : ", ") + one;
  return text;
}

LayerwiseOptions layerwise_options(const CalibrateOptions& options, const Backend& backend,
                                   const ModelConfig& config, const fs::path& scratch) {
  LayerwiseOptions layerwise{.compute_type = compute_type_of(options.device, backend, config),
                             .batch_tokens = options.batch_tokens,
                             .scratch_folder = scratch};
  if (!options.memory_limit.empty())
    layerwise.memory_limit =
        in_context("--memory-limit", [&] { return parse_byte_size(options.memory_limit); });
  return layerwise;
}

/// What a run borrows, and what the manifest says of it.
struct RunInputs {
  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<Dataset> dataset;
  std::vector<Sample> samples;
  LayerwiseOptions layerwise;
  int threads = 0;
  std::optional<StopOutcome> stop;

  CalibrationRun run() const {
    return {.backends = borrowed(backends),
            .samples = samples,
            .layerwise = layerwise,
            .threads = threads};
  }
};

/// Samples that the stop rule spared are taken out of the inputs.
Calibration calibrate_inputs(const CalibrateOptions& options, const CalibrationSubject& subject,
                             const CalibrationRun& run, RunInputs& inputs, Statistics* kept,
                             Diagnostics& diagnostics) {
  const CalibrationOptions how = calibration_options(options);
  if (options.stable_ratio.empty() || !needs_data(subject.plan))
    return measure(subject, run, how, kept, diagnostics);
  StableCalibration stable =
      measure_until_stable(subject, run, how, stop_rule(options), kept, diagnostics);
  inputs.stop = stable.stop;
  inputs.samples.resize(static_cast<size_t>(stable.stop.num_samples));
  return std::move(stable.calibration);
}

ManifestInput manifest_input(const CalibrateOptions& options, const CalibrationSubject& subject,
                             const RunInputs* run, const StageClock& clock) {
  ManifestInput input;
  input.version = KVCAL_VERSION;
  Provenance& origin = input.origin;
  origin.model_path = options.model;
  origin.model_type = subject.config.model_type;
  origin.model_sha256 = subject.model_dir.sha256();
  input.recipe_path = options.recipe;
  input.leave_out_machine = options.reproducible;
  input.seconds = clock.seconds();
  input.peak_rss_bytes = peak_resident_bytes();
  if (!run) return input;
  origin.dataset_path = options.dataset;
  origin.dataset_sha256 = run->dataset->sha256();
  origin.compute_dtype = name_of(run->layerwise.compute_type);
  origin.kv_forward = options.kv_forward;
  origin.all_experts = options.all_experts;
  origin.device = description_of(run->backends);
  input.stop = run->stop;
  set_samples(run->samples, origin);
  return input;
}

void save_statistics(const CalibrateOptions& options, const CalibrationSubject& subject,
                     const ManifestInput& manifest, Statistics& statistics) {
  if (options.save_statistics.empty()) return;
  statistics.origin = manifest.origin;
  statistics.origin.model_config = dump_json(subject.model_dir.config());
  write_statistics(options.save_statistics, statistics, options.output.overwrite);
}

/// An unstable end is a warning.
void print_stop(const StopOutcome& stop) {
  if (!stop.is_stable) return;
  const ScaleMove& move = *stop.largest_move;
  std::cout << "stable after " << stop.num_samples << " of at most " << stop.max_samples
            << " samples: in the last " << move.num_samples << " no scale moved by more than "
            << percent(*move.ratio) << '\n';
}

/// What is written when a calibration is done: the output, whole, and what lies beside it.
class Result {
 public:
  Result(const CalibrateOptions& options, const CalibrationSubject& subject,
         const OutputFormats& formats)
      : options_(options),
        subject_(subject),
        formats_(formats),
        output_(options.output.output, options.output.overwrite) {}

  fs::path scratch_folder() const { return output_.target().parent_path(); }
  /// inputs: null where nothing was calibrated.
  void write(const Calibration& calibration, Statistics& statistics, const RunInputs* inputs,
             StageClock& clock, Diagnostics& diagnostics) {
    const WrittenCheckpoint written = formats_.write(
        subject_.output_of(calibration), output_.path(), options_.device.threads, diagnostics);
    clock.end("write");
    const ManifestInput input = manifest_input(options_, subject_, inputs, clock);
    const Json manifest = make_manifest(input, subject_.recipe, calibration, written);
    write_text_file(output_.path() / kManifestName, dump_json(manifest));
    save_statistics(options_, subject_, input, statistics);
    output_.commit();
    if (options_.report.is_asked_for())
      write_report(options_.report,
                   page_values(options_.output.output, options_.model, KVCAL_VERSION));
    if (options_.json) {
      std::cout << dump_json(manifest);
      return;
    }
    print_calibration(calibration, written);
    if (inputs && inputs->stop) print_stop(*inputs->stop);
    print_folders(formats_, subject_.config);
  }

 private:
  const CalibrateOptions& options_;
  const CalibrationSubject& subject_;
  const OutputFormats& formats_;
  AtomicDirectory output_;
};

/// The command, on one rank: all calibrate, the first writes.
class Calibrate {
 public:
  Calibrate(const CalibrateOptions& options, RankSession& session)
      : options_(options), session_(session) {}

  void run() {
    together(ranks(), [&] { prepare(); });
    if (needs_data(subject_->plan) || !options_.save_statistics.empty())
      return calibrate_and_write();
    if (!result_) return;
    Statistics none;
    const KvDType kv_dtype = parse_fp8_cache_dtype(options_.output.kv_cache_dtype);
    result_->write(empty_calibration(subject_->plan, subject_->config, kv_dtype), none, nullptr,
                   clock_, told());
  }

 private:
  Communicator& ranks() { return session_.ranks(); }
  /// Of several ranks the first tells what all of them see.
  Diagnostics& told() {
    if (session_.is_first()) return diagnostics_;
    return silent_;
  }

  void prepare() {
    formats_.emplace(options_.output);
    subject_.emplace(
        make_subject(read_recipe(options_.recipe), options_.recipe, options_.model, told()));
    check_all(options_, *subject_, *formats_);
    if (!session_.is_first()) return;
    warn_of_idle_options(options_, *subject_, told());
    result_ = std::make_unique<Result>(options_, *subject_, *formats_);
    // What an engine refuses is known from the plan, and said before the long work.
    const KvDType kv_dtype = parse_fp8_cache_dtype(options_.output.kv_cache_dtype);
    formats_->tell_notes(
        subject_->output_of(planned_calibration(subject_->plan, subject_->config, kv_dtype)),
        told());
  }

  /// Beside the output, where this rank has that folder.
  fs::path scratch_folder() const {
    if (result_) return result_->scratch_folder();
    const fs::path parent = fs::absolute(options_.output.output).lexically_normal().parent_path();
    std::error_code error;
    return fs::is_directory(parent, error) ? parent : temporary_folder();
  }

  void read_inputs() {
    const DeviceOptions devices = devices_of_rank(options_.device, ranks());
    together(ranks(), [&] {
      inputs_.threads = devices.threads;
      inputs_.backends = open_backends(devices);
      inputs_.layerwise =
          layerwise_options(options_, *inputs_.backends[0], subject_->config, scratch_folder());
      inputs_.dataset = open_dataset(options_.dataset);
      inputs_.samples = samples_for(*subject_, *inputs_.dataset, options_.samples, told());
    });
    clock_.end("load");
  }

  /// With text: forward passes, whose state is kept until all is written.
  void calibrate_and_write() {
    read_inputs();
    CalibrationRun run = inputs_.run();
    const RunFacts facts{.subject = *subject_, .run = run, .options = deciding_options(options_)};
    const Json fingerprint = fingerprint_of(facts);
    expect_same_run(ranks(), subject_->model_dir, fingerprint);
    RankedRun ranked = make_ranked_run(ranks(), options_.ranks, subject_->model_dir);
    const RankWork before = process_work();
    RankWork work;
    ranked.work = &work;
    RankPeers peers(ranks());
    const std::unique_ptr<RunState> state =
        open_state(options_.state, options_.output.output, options_.output.overwrite, facts,
                   fingerprint, {.ranks = ranks(), .peers = peers}, diagnostics_);
    run.state = state.get();
    run.ranked = session_.is_alone() ? nullptr : &ranked;
    with_state(state.get(), [&] {
      Statistics statistics;
      const Calibration calibration =
          calibrate_inputs(options_, *subject_, run, inputs_,
                           options_.save_statistics.empty() ? nullptr : &statistics, diagnostics_);
      if (state) state->finish();
      clock_.end("calibrate");
      tell_work(ranks(), work, before);
      session_.set_stage("writing the output");
      if (!result_) return;
      formats_->check(subject_->output_of(calibration));
      result_->write(calibration, statistics, &inputs_, clock_, diagnostics_);
      if (state) state->remove();
    });
  }

  const CalibrateOptions& options_;
  RankSession& session_;
  StageClock clock_;
  TerminalDiagnostics diagnostics_;
  SilentDiagnostics silent_;
  std::optional<OutputFormats> formats_;
  std::optional<CalibrationSubject> subject_;
  std::unique_ptr<Result> result_;  ///< null: the first rank writes
  RunInputs inputs_;
};

void run_calibrate(CalibrateOptions options) {
  if (options.output.formats.empty()) options.output.formats.emplace_back("compressed-tensors");
  options.report.overwrite = options.output.overwrite;
  with_ranks(options.ranks, [&](RankSession& session) { Calibrate(options, session).run(); });
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
