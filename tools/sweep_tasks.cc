#include "sweep_tasks.h"

#include "calib/derive.h"
#include "calib/statistics.h"
#include "core/folder.h"
#include "export/layer_scales.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "kvcal_version.h"
#include "run/calibration_run.h"
#include "run/output_formats.h"
#include "sweep/kept_results.h"
#include "sweep_evaluation.h"

namespace kvcal {
namespace {

/// Samples of a data set.
struct CalibrationText {
  std::string sha256;
  std::vector<Sample> samples;
};

/// One task of a sweep.
class TaskRun {
 public:
  TaskRun(const SweepOptions& options, const Sweep& sweep, const SweepFolder& folder,
          Backend& backend, Diagnostics& diagnostics)
      : options_(options),
        sweep_(sweep),
        folder_(folder),
        backend_(backend),
        diagnostics_(diagnostics) {}

  void observe(const Observation& observation) {
    const CalibrationSubject subject =
        make_subject(statistics_recipe(), "statistics",
                     sweep_.file.models[observation.model].path.string(), diagnostics_);
    const CalibrationText text = read_text(subject, observation.num_samples, observation.seed);
    Statistics statistics;
    measure(subject, run_of(subject, text, observation.model),
            {.kv_forward = KvForward::kExact, .observes_all = observation.observes_all},
            &statistics, diagnostics_);
    Provenance& origin = statistics.origin;
    origin = origin_of(subject, observation.model);
    origin.model_config = dump_json(subject.model_dir.config());
    add_text(observation.model, "exact", origin);
    origin.dataset_sha256 = text.sha256;
    set_samples(text.samples, origin);
    write_statistics(folder_.statistics(observation.fingerprint), statistics, true);
  }

  void calibrate(const PlannedCalibration& planned) {
    const CalibrationSubject subject =
        make_subject(recipe_of(planned, sweep_.file), sweep_.file.recipes[planned.recipe].name,
                     sweep_.file.models[planned.model].path.string(), diagnostics_);
    if (planned.makes_checkpoint) check_checkpoint(subject, planned);
    ManifestInput input = manifest_input(subject, planned);
    const Calibration calibration =
        planned.observation   ? derived(subject, planned, input.origin)
        : planned.num_samples ? measured(subject, planned, input.origin)
                              : empty_calibration(subject.plan, subject.config, dtype_of(planned));
    check_calibration(calibration);
    WrittenCheckpoint written;
    if (planned.makes_checkpoint) written = write_checkpoint(subject, calibration, planned);
    folder_.write(folder_.calibration(planned.fingerprint),
                  make_manifest(input, subject.recipe, calibration, written));
  }

 private:
  static KvDType dtype_of(const PlannedCalibration& planned) {
    return planned.kv_cache_dtype.value_or(KvDType::kFp8E4m3);
  }

  CalibrationText read_text(const CalibrationSubject& subject, int64_t num_samples,
                            std::optional<uint64_t> seed) {
    const auto dataset = open_dataset(sweep_.file.calibration->dataset);
    return {dataset->sha256(),
            samples_for(subject, *dataset,
                        {.num_calibration_samples = num_samples,
                         .max_seq_length = sweep_.file.calibration->max_seq_length,
                         .shuffle_seed = seed},
                        diagnostics_)};
  }

  CalibrationRun run_of(const CalibrationSubject& subject, const CalibrationText& text,
                        size_t model) {
    const DeviceOptions device = device_of(options_, sweep_, model);
    return {.backends = {&backend_},
            .samples = text.samples,
            .layerwise = {.compute_type = compute_type_of(device, backend_, subject.config),
                          .scratch_folder = folder_.path()},
            .threads = device.threads};
  }

  Provenance origin_of(const CalibrationSubject& subject, size_t model) const {
    Provenance origin;
    origin.model_path = sweep_.file.models[model].path.string();
    origin.model_type = subject.config.model_type;
    origin.model_sha256 = sweep_.inputs.model_sha256[model];
    return origin;
  }

  ManifestInput manifest_input(const CalibrationSubject& subject,
                               const PlannedCalibration& planned) {
    ManifestInput input;
    input.version = KVCAL_VERSION;
    input.origin = origin_of(subject, planned.model);
    input.recipe_path = sweep_.file.recipes[planned.recipe].name;
    input.leave_out_machine = true;
    return input;
  }

  void add_text(size_t model, const std::string& kv_forward, Provenance& origin) const {
    origin.dataset_path = sweep_.file.calibration->dataset.string();
    origin.dataset_sha256 = sweep_.inputs.calibration_sha256;
    origin.compute_dtype = sweep_.inputs.compute_dtype[model];
    origin.kv_forward = kv_forward;
  }

  Calibration measured(const CalibrationSubject& subject, const PlannedCalibration& planned,
                       Provenance& origin) {
    const CalibrationText text = read_text(subject, *planned.num_samples, planned.seed);
    add_text(planned.model, planned.kv_forward.value_or("exact"), origin);
    set_samples(text.samples, origin);
    return measure(subject, run_of(subject, text, planned.model),
                   {.kv_forward = KvForward::kQuantized, .derive = {.kv_dtype = dtype_of(planned)}},
                   nullptr, diagnostics_);
  }

  /// From the statistics that all recipes share.
  Calibration derived(const CalibrationSubject& subject, const PlannedCalibration& planned,
                      Provenance& origin) {
    const Observation& seen = sweep_.plan.observations[*planned.observation];
    const Statistics statistics = read_statistics(folder_.statistics(seen.fingerprint));
    add_text(planned.model, planned.kv_forward.value_or("exact"), origin);
    origin.sample_indices = statistics.origin.sample_indices;
    origin.num_tokens = statistics.origin.num_tokens;
    return derive(statistics, subject.plan, subject.config, {.kv_dtype = dtype_of(planned)},
                  diagnostics_);
  }

  /// What a checkpoint has of it: weights and inputs; scales of K and V where the format has a
  /// place for them. Cells take those from the manifest.
  static Calibration written_part(Calibration calibration) {
    if (calibration.kv_format == fp8::Format::kE5m2) {
      calibration.layers.clear();
      calibration.plan.attention.clear();
    }
    return calibration;
  }

  static OutputFormats checkpoint_format() {
    OutputOptions output;
    output.formats = {"compressed-tensors"};
    return OutputFormats(output);
  }

  /// Refuses what could not be written before the long work.
  static void check_checkpoint(const CalibrationSubject& subject,
                               const PlannedCalibration& planned) {
    if (!subject.kept) check_is_unquantized(subject.model_dir);
    const Calibration calibration =
        written_part(planned_calibration(subject.plan, subject.config, dtype_of(planned)));
    checkpoint_format().check(subject.output_of(calibration));
  }

  WrittenCheckpoint write_checkpoint(const CalibrationSubject& subject, const Calibration& measured,
                                     const PlannedCalibration& planned) {
    const Calibration calibration = written_part(measured);
    const OutputFormats formats = checkpoint_format();
    const ExportInput input = subject.output_of(calibration);
    formats.check(input);
    AtomicDirectory folder(folder_.checkpoint(planned.fingerprint), true);
    WrittenCheckpoint written =
        formats.write(input, folder.path(), options_.device.threads, diagnostics_);
    folder.commit();
    return written;
  }

  const SweepOptions& options_;
  const Sweep& sweep_;
  const SweepFolder& folder_;
  Backend& backend_;
  Diagnostics& diagnostics_;
};

}  // namespace

void run_task(const SweepOptions& options, const Sweep& sweep, const SweepTask& task,
              const SweepFolder& folder, Backend& backend, Diagnostics& diagnostics) {
  const SweepFolder::PieceLock lock(folder,
                                    fingerprint_of(task.kind, task.parts.at(0), sweep.plan));
  if (is_done(task, sweep, folder)) return;
  if (task.kind == SweepTask::Kind::kEvaluate)
    return evaluate_cells(options, sweep, task.parts, folder, backend, diagnostics);
  if (task.kind == SweepTask::Kind::kAnswer)
    return answer_questions(options, sweep, sweep.plan.cells[task.parts[0]], folder, backend,
                            diagnostics);
  TaskRun run(options, sweep, folder, backend, diagnostics);
  if (task.kind == SweepTask::Kind::kObserve)
    return run.observe(sweep.plan.observations[task.parts[0]]);
  run.calibrate(sweep.plan.calibrations[task.parts[0]]);
}

}  // namespace kvcal
