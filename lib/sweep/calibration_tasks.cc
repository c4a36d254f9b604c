#include "sweep/task_context.h"

#include "calib/derive.h"
#include "calib/observed_statistics.h"
#include "export/layer_scales.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "hub/hub_cache.h"
#include "quant/attention_error.h"
#include "run/calibration_run.h"
#include "run/named_inputs.h"
#include "run/output_formats.h"
#include "run/subject.h"
#include "sweep/sweep_inputs.h"

namespace kvcal {
namespace {

/// Samples of a data set.
struct CalibrationText {
  std::string sha256;
  std::vector<Sample> samples;
};

/// One task: a model with a recipe.
class CalibrationTask {
 public:
  CalibrationTask(const TaskContext& context, size_t model, Recipe recipe,
                  const std::string& recipe_name)
      : context_(context),
        model_(model),
        subject_(make_subject(std::move(recipe), recipe_name, path(), context.diagnostics,
                              context.sweep.inputs.family)) {}

  void observe(const Observation& observation) {
    const CalibrationText text = read_text(observation.num_samples, observation.seed);
    Statistics statistics;
    measure(subject_, run_of(text),
            {.kv_forward = KvForward::kExact, .observes_all = observation.observes_all},
            &statistics, context_.diagnostics);
    Provenance& origin = statistics.origin;
    origin = model_origin();
    origin.model_config = dump_json(subject_.model_dir.config());
    add_text("exact", origin);
    origin.dataset_sha256 = text.sha256;
    set_samples(text.samples, origin);
    write_statistics(context_.folder.statistics(observation.fingerprint), statistics, true,
                     observation.fingerprint);
  }

  void calibrate(const PlannedCalibration& planned) {
    kv_dtype_ = planned.kv_cache_dtype.value_or(KvDType::kFp8E4m3);
    if (planned.makes_checkpoint) check_checkpoint();
    ManifestInput input;
    input.version = inputs().version;
    input.origin = model_origin();
    input.recipe_path = context_.sweep.file.recipes[planned.recipe].name;
    input.leave_out_machine = true;
    if (planned.num_samples) input.reading = to_json(text_source().records.chat);
    const Calibration calibration =
        planned.num_samples ? from_text(planned, input.origin)
                            : empty_calibration(subject_.plan, subject_.config, kv_dtype_);
    check_calibration(calibration);
    const auto manifest = [&](const WrittenCheckpoint& written) {
      return make_manifest(input, subject_.recipe, calibration, written);
    };
    context_.folder.write_piece(
        context_.folder.calibration(planned.fingerprint),
        planned.makes_checkpoint
            ? write_checkpoint(calibration, planned,
                               {.manifest = manifest, .config = subject_.config})
            : manifest({}));
  }

 private:
  const SweepInputs& inputs() const { return context_.sweep.inputs; }
  std::string path() const { return context_.sweep.file.models[model_].path.string(); }
  const SweepCalibration& text_source() const { return *context_.sweep.file.calibration; }

  CalibrationText read_text(int64_t num_samples, std::optional<uint64_t> seed) const {
    const auto dataset = open_dataset(text_source().dataset, {.records = text_source().records});
    return {dataset->sha256(), samples_for(subject_, *dataset, text_source().records,
                                           {.num_calibration_samples = num_samples,
                                            .max_seq_length = text_source().max_seq_length,
                                            .shuffle_seed = seed},
                                           context_.diagnostics)};
  }

  CalibrationRun run_of(const CalibrationText& text) const {
    const DeviceOptions device = device_of(context_.device, context_.sweep, model_);
    return {
        .backends = {&context_.backend},
        .samples = text.samples,
        .layerwise = {.compute_type = compute_type_of(device, context_.backend, subject_.config),
                      .scratch_folder = context_.folder.path()},
        .threads = device.threads};
  }

  Provenance model_origin() const {
    Provenance origin;
    origin.model_path = name_of_model(subject_.model_dir);
    set_model_type(subject_.config, origin);
    origin.model_sha256 = inputs().model_sha256[model_];
    return origin;
  }

  void add_text(const std::string& kv_forward, Provenance& origin) const {
    origin.dataset_path = name_of_source(text_source().dataset);
    origin.dataset_sha256 = inputs().calibration_sha256;
    if (const RecordColumns& columns = text_source().records.columns; !columns.is_empty())
      origin.dataset_columns = to_json(columns).dump();
    origin.compute_dtype = inputs().compute_dtype[model_];
    origin.kv_forward = kv_forward;
  }

  /// From the statistics that all recipes share, where the plan has them, else from a forward pass
  /// of its own.
  Calibration from_text(const PlannedCalibration& planned, Provenance& origin) const {
    add_text(planned.kv_forward.value_or("exact"), origin);
    if (planned.observation) {
      const Observation& seen = context_.sweep.plan.observations[*planned.observation];
      const Statistics statistics =
          read_statistics(context_.folder.statistics(seen.fingerprint), seen.fingerprint);
      origin.sample_indices = statistics.origin.sample_indices;
      origin.num_tokens = statistics.origin.num_tokens;
      origin.longest_sample = statistics.origin.longest_sample;
      return derive(statistics, subject_.plan, subject_.config, {.kv_dtype = kv_dtype_},
                    context_.diagnostics);
    }
    const CalibrationText text = read_text(*planned.num_samples, planned.seed);
    set_samples(text.samples, origin);
    return measure(subject_, run_of(text),
                   {.kv_forward = planned.kv_forward == "quantized" ? KvForward::kQuantized
                                                                    : KvForward::kExact,
                    .derive = {.kv_dtype = kv_dtype_},
                    .compared_samples = chooses_by_attention(subject_.recipe)
                                            ? compared_samples(lengths_of(text.samples))
                                            : 0},
                   nullptr, context_.diagnostics);
  }

  /// The calibration as the checkpoint holds it: weights, inputs, and scales of K and V where the
  /// format has a place for them. Cells take those from the manifest.
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

  /// Before the long work, refuses what could not be written after it.
  void check_checkpoint() {
    subject_.settle_output(checkpoint_format().names(), context_.diagnostics);
    subject_.check_source();
    const Calibration calibration =
        written_part(planned_calibration(subject_.plan, subject_.config, kv_dtype_));
    checkpoint_format().check(subject_.output_of(calibration));
  }

  /// Returns the manifest.
  Json write_checkpoint(const Calibration& measured, const PlannedCalibration& planned,
                        const OutputTexts& texts) const {
    const Calibration calibration = written_part(measured);
    const OutputFormats formats = checkpoint_format();
    const ExportInput input = subject_.output_of(calibration);
    formats.check(input);
    AtomicDirectory folder(context_.folder.checkpoint(planned.fingerprint), true);
    const Json manifest = texts.manifest(
        formats.write(input, folder.path(), context_.device.threads, context_.diagnostics));
    write_cards(formats, input, manifest, texts, folder.path());
    folder.commit();
    return manifest;
  }

  const TaskContext& context_;
  size_t model_;
  CalibrationSubject subject_;
  KvDType kv_dtype_ = KvDType::kFp8E4m3;
};

}  // namespace

void collect_statistics(const TaskContext& context, const Observation& observation) {
  CalibrationTask(context, observation.model, statistics_recipe(), "statistics")
      .observe(observation);
}

void make_scales(const TaskContext& context, const PlannedCalibration& planned) {
  CalibrationTask(context, planned.model, recipe_of(planned, context.sweep.file),
                  context.sweep.file.recipes[planned.recipe].name)
      .calibrate(planned);
}

}  // namespace kvcal
