#include "run/calibrate_checkpoint.h"

#include <algorithm>
#include <chrono>

#include "calib/plan/resolve_plan.h"
#include "core/file.h"
#include "core/files_read.h"
#include "core/folder.h"
#include "core/process.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "family/image_rules.h"
#include "hub/hub_cache.h"
#include "quant/observer.h"
#include "run/calibration_preview.h"
#include "run/command_paths.h"
#include "run/devices.h"
#include "run/kl_budget.h"
#include "run/smooth_checkpoint.h"

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

/// Devices and data of one run.
struct RunInputs {
  std::vector<std::unique_ptr<Backend>> backends;
  std::unique_ptr<Dataset> dataset;
  std::vector<Sample> samples;
  SkippedRecords skipped = {};
  LayerwiseOptions layerwise;
  int threads = 0;
  std::string inputs = {};  ///< as in Provenance

  CalibrationRun run() const {
    return {.backends = borrowed(backends),
            .samples = samples,
            .layerwise = layerwise,
            .threads = threads};
  }
};

ManifestInput manifest_input(const CalibrateRequest& request, const PlannedModel& subject,
                             const RunInputs* run, const CalibrationResult& result,
                             const StageClock& clock) {
  ManifestInput input;
  input.version = request.version;
  Provenance& origin = input.origin;
  origin.model_path = request.source ? request.source->path : name_of_model(subject.model_dir);
  set_model_type(subject.config, origin);
  origin.model_sha256 = request.source ? request.source->sha256 : subject.model_dir.sha256();
  input.recipe_path = request.recipe;
  input.leave_out_machine = request.reproducible;
  input.seconds = clock.seconds();
  input.peak_rss_bytes = peak_resident_bytes();
  if (result.summary)
    input.summary = summary_json(*result.summary, run ? tokens_of(run->samples) : 0);
  if (result.budget) input.kl_budget = to_json(*result.budget);
  if (!run) return input;
  origin.dataset_path =
      request.dataset_name.empty() ? name_of_source(request.dataset) : request.dataset_name;
  origin.dataset_sha256 = run->dataset->sha256();
  if (const Json columns = to_json(request.records.columns); !columns.empty())
    origin.dataset_columns = columns.dump();
  input.reading = to_json(request.records.chat);
  if (run->skipped.count > 0)
    input.reading["skipped"] = {{"count", run->skipped.count}, {"reasons", run->skipped.reasons}};
  origin.compute_dtype = name_of(run->layerwise.compute_type);
  origin.kv_forward = request.kv_forward;
  origin.inputs = run->inputs;
  origin.all_experts = request.all_experts;
  origin.device = description_of(run->backends);
  input.products = products_json(product_choices_of(run->backends));
  input.stop = result.stop;
  set_samples(run->samples, origin);
  return input;
}

RunCost cost_of(const ManifestInput& input, const RunInputs& run) {
  RunCost cost{.num_samples = input.origin.sample_indices.size(),
               .num_tokens = static_cast<uint64_t>(input.origin.num_tokens),
               .seconds = 0,
               .peak_bytes = input.peak_rss_bytes};
  if (!run.backends.at(0)->is_host()) cost.device = input.origin.device;
  cost.products = product_choices_of(run.backends);
  cost.parts = part_times_of(run.backends);
  for (const auto& [stage, seconds] : input.seconds) cost.seconds += seconds;
  return cost;
}

void stage_statistics(const CalibrateRequest& request, const PlannedModel& subject,
                      const ManifestInput& manifest, Statistics& statistics,
                      StagedOutputs& outputs) {
  if (request.save_statistics.empty()) return;
  statistics.origin = manifest.origin;
  statistics.origin.model_config = dump_json(subject.model_dir.config());
  outputs.add(stage_statistics(request.save_statistics, statistics, request.output.overwrite));
}

/// An exact calibration of a plan that leaves further layers out: nothing else changes.
Calibration left_out(Calibration calibration, const QuantPlan& plan) {
  calibration.plan = plan;
  for (AttentionCalibration& layer : calibration.layers) {
    const auto planned = std::ranges::find(plan.attention, layer.module, &PlannedAttention::module);
    KVCAL_CHECK(planned != plan.attention.end());
    if (!planned->ignored || layer.ignored) continue;
    layer.ignored = true;
    layer.q.reset();
    layer.damage.reset();
    if (make_observer(planned->kv)->may_clip())
      layer.k.num_saturated = layer.v.num_saturated = std::nullopt;
  }
  return calibration;
}

/// Names the tokens at which K and V are largest, where each is one: a manifest goes with the
/// model, and longer pieces of the data are not for everybody. Data of token ids has no text.
void name_largest_tokens(const PlannedModel& subject, const Dataset& dataset,
                         const RecordOptions& records, std::span<const Sample> samples,
                         Calibration& calibration) {
  const Record first = first_record(dataset, records.skip);
  if (std::holds_alternative<std::vector<TokenId>>(first.content)) return;
  const auto tokenizer = make_tokenizer(subject.model_dir.path());
  for (AttentionCalibration& layer : calibration.layers) {
    if (subject.config.is_draft(layer.layer)) continue;  // its rows are of two tokens each
    for (KvTensorCalibration* side : {&layer.k, &layer.v}) {
      if (!side->amax_place || !side->amax_place->is_one_token()) continue;
      const Sample& sample = samples[static_cast<size_t>(side->amax_place->sample)];
      const TokenId id = sample.ids.at(static_cast<size_t>(side->amax_place->first));
      side->amax_place->text =
          shown_text(tokenizer->decode(std::span(&id, 1), /*skip_special_tokens=*/false));
    }
  }
}

/// Calibration on one rank: all ranks calibrate, and the first writes.
class Calibrating {
 public:
  Calibrating(const CalibrateRequest& request, RankSession& session, Diagnostics& diagnostics,
              const CalibrationSteps& steps)
      : request_(request), session_(session), diagnostics_(diagnostics), steps_(steps) {}

  void run() {
    expect_same_output(ranks(), request_.output.output);
    together(ranks(), [&] { prepare(); });
    if (runs_text(request_, *plan_.subject)) return calibrate_and_write();
    if (!output_) return;
    Statistics none;
    const KvDType kv_dtype = parse_fp8_cache_dtype(request_.output.kv_cache_dtype);
    write({.config = plan_.subject->config,
           .calibration = empty_calibration(plan_.subject->plan, plan_.subject->config, kv_dtype)},
          none, nullptr);
  }

 private:
  Communicator& ranks() { return session_.ranks(); }
  /// Only rank 0 reports what every rank would report.
  Diagnostics& told() {
    if (session_.is_first()) return diagnostics_;
    return silent_;
  }

  void prepare() {
    plan_run(request_, plan_, told());
    if (request_.kl_budget && !session_.is_alone())
      fail_usage(
          "--kl-budget runs in one process: calibrate on several ranks without it, and let kvcal ",
          "eval --task sensitivity choose the layers");
    inputs_.inputs = plan_.inputs;
    if (!session_.is_first()) return;
    warn_of_idle_options(request_, *plan_.subject, told());
    output_.emplace(plan_.formats->place(), request_.output.overwrite);
    check_room(request_.output.output, output_bytes(request_, plan_));
    // The plan determines what an engine refuses, so the notes come before the long work.
    const KvDType kv_dtype = parse_fp8_cache_dtype(request_.output.kv_cache_dtype);
    plan_.formats->tell_notes(plan_.subject->output_of(planned_calibration(
                                  plan_.subject->plan, plan_.subject->config, kv_dtype)),
                              told());
  }

  /// Folder of the output, if this rank has it.
  fs::path scratch_folder() const {
    if (output_) return output_->target().parent_path();
    const fs::path parent = output_place(request_.output.output).parent_path();
    std::error_code error;
    return fs::is_directory(parent, error) ? parent : temporary_folder();
  }

  void read_inputs() {
    const DeviceOptions devices =
        timed_devices(request_, devices_of_rank(request_.device, ranks()));
    together(ranks(), [&] {
      const GpuStart beside(devices);
      inputs_.threads = devices.threads;
      inputs_.dataset = open_dataset(request_.dataset, {.records = request_.records});
      inputs_.samples = samples_for(*plan_.subject, *inputs_.dataset, request_.records,
                                    request_.samples, told(), &inputs_.skipped);
      advise_images(inputs_.samples);
      inputs_.backends = open_backends(devices, told());
      inputs_.layerwise = layerwise_options(request_, *inputs_.backends[0], plan_.subject->config,
                                            scratch_folder());
      // By now what is read is known: the forward passes need not run in vain.
      for (const std::string& path : {request_.output.output, request_.save_statistics,
                                      request_.report.page, request_.report.plots})
        if (!path.empty()) check_not_read(output_place(path));
    });
    clock_.end("load");
  }

  /// Says where a model that sees images is calibrated on text alone.
  void advise_images(std::span<const Sample> samples) {
    if (!image_rules_of(plan_.subject->config.wrapper_type) || !embedded_of(samples).empty())
      return;
    told().note(
        "the samples are text, and the model sees images, too, whose K and V may be larger: "
        "`python -m "
        "kvcal.images " +
        request_.model +
        " --dataset PICTURES --output SAMPLES` makes "
        "samples of both, for --dataset SAMPLES");
  }

  /// Runs the forward passes over the data, and keeps their state until everything is written.
  void calibrate_and_write() {
    read_inputs();
    CalibrationRun run = inputs_.run();
    const Json fingerprint =
        fingerprint_of(*plan_.subject, run, deciding_options(request_), request_.version);
    expect_same_run(ranks(), plan_.subject->model_dir, fingerprint);
    RankedRun ranked = make_ranked_run(ranks(), request_.ranks, plan_.subject->model_dir, told());
    const RankWork before = process_work();
    RankWork work;
    ranked.work = &work;
    RankPeers peers(ranks());
    const std::unique_ptr<RunState> state =
        open_state(request_.state, request_.output, *plan_.subject, run, fingerprint, ranks(),
                   peers, diagnostics_);
    run.state = state.get();
    run.ranked = session_.is_alone() ? nullptr : &ranked;
    with_state(state.get(), request_.resume_command, [&] {
      Statistics statistics;
      CalibrationResult result = measured(run, statistics);
      if (state) state->finish();
      if (request_.kl_budget) keep_budget(run, result);
      clock_.end("calibrate");
      result.shares = gather_shares(ranks(), work, before);
      session_.set_stage("writing the output");
      if (!output_) return;
      plan_.formats->check(plan_.subject->output_of(result.calibration));
      write(std::move(result), statistics, &inputs_);
      if (state) state->remove();
    });
  }

  /// Leaves layers out where the budget needs that. Later layers see those in 16 bits, and so do
  /// the runs that are told of them: where K and V are quantized on the way, the calibration is
  /// made anew, and the output has the bytes of one with --kv-cache-dtype-skip-layers.
  void keep_budget(CalibrationRun run, CalibrationResult& result) {
    run.samples = inputs_.samples;
    run.state = nullptr;  // which has the first calibration
    const CalibrationOptions how = calibration_options(request_, lengths_of(inputs_.samples));
    const auto recalibrate = [&](const std::vector<int64_t>& layers) {
      plan_.subject->leave_out(layers);
      if (how.kv_forward == KvForward::kExact)
        return left_out(result.calibration, plan_.subject->plan);
      diagnostics_.inform("calibrating again with " + layer_range_text(layers) +
                          " in 16 bits, as the later ones will see them");
      return calibrate_samples(*plan_.subject, run, how, nullptr, silent_);
    };
    KlBudget budget(request_, result.calibration, result.config, std::ssize(run.samples),
                    diagnostics_);
    result.budget = budget.keep(result.calibration, recalibrate);
  }

  /// Removes samples that the stop rule made unnecessary from the inputs.
  CalibrationResult measured(const CalibrationRun& run, Statistics& statistics) {
    const CalibrationOptions how = calibration_options(request_, lengths_of(inputs_.samples));
    Statistics* kept = request_.save_statistics.empty() ? nullptr : &statistics;
    CalibrationResult result{.config = plan_.subject->config,
                             .by_attention = chooses_by_attention(plan_.subject->recipe)};
    if (request_.stable_ratio.empty() || !needs_data(plan_.subject->plan)) {
      result.calibration = calibrate_samples(*plan_.subject, run, how, kept, diagnostics_);
      return result;
    }
    StableCalibration stable = calibrate_samples_until_stable(
        *plan_.subject, run, how, stop_rule(request_), kept, diagnostics_);
    result.stop = stable.stop;
    result.calibration = std::move(stable.calibration);
    inputs_.samples.resize(static_cast<size_t>(stable.stop.num_samples));
    return result;
  }

  /// inputs: null where the recipe needs no calibration.
  void write(CalibrationResult result, Statistics& statistics, const RunInputs* inputs) {
    StagedOutputs outputs;
    if (inputs)
      name_largest_tokens(*plan_.subject, *inputs->dataset, request_.records, inputs->samples,
                          result.calibration);
    result.summary = summarize_scales(result.calibration, result.config,
                                      inputs ? longest_of(inputs->samples) : 0);
    const auto manifest = [&](const WrittenCheckpoint& written) {
      clock_.end("write");
      const ManifestInput input = manifest_input(request_, *plan_.subject, inputs, result, clock_);
      if (inputs) result.cost = cost_of(input, *inputs);
      stage_statistics(request_, *plan_.subject, input, statistics, outputs);
      return make_manifest(input, plan_.subject->recipe, result.calibration, written);
    };
    result.output = stage_output(*plan_.formats, plan_.subject->output_of(result.calibration),
                                 *output_, request_.device.threads, output_texts(result, manifest),
                                 diagnostics_, outputs);
    if (steps_.staged) steps_.staged(result, output_->path(), outputs);
    outputs.commit();
    steps_.written(result);
  }

  CalibrateRequest request_;
  RankSession& session_;
  Diagnostics& diagnostics_;
  const CalibrationSteps& steps_;
  StageClock clock_;
  SilentDiagnostics silent_;
  PlannedRun plan_;
  std::optional<AtomicDirectory> output_;  ///< on rank 0 alone
  RunInputs inputs_;
};

}  // namespace

void calibrate_checkpoint(const CalibrateRequest& request, RankSession& session,
                          Diagnostics& diagnostics, const CalibrationSteps& steps) {
  if (!request.smooths) return Calibrating(request, session, diagnostics, steps).run();
  const SmoothedModel smoothed(request, session, diagnostics);
  Calibrating(smoothed.request(), session, diagnostics, steps).run();
}

}  // namespace kvcal
