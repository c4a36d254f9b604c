#include "sweep/sweep_tasks.h"

#include <optional>

#include "calib/scales/derive.h"
#include "calib/statistics/observed_statistics.h"
#include "eval/gsm8k.h"
#include "eval/likelihood.h"
#include "eval/sequences.h"
#include "export/manifest.h"
#include "export/statistics_file.h"
#include "hub/hub_cache.h"
#include "quant/damage_verdict.h"
#include "quant/scale.h"
#include "run/calibration_run.h"
#include "run/command_output.h"
#include "run/command_paths.h"
#include "run/eval_variants.h"
#include "run/subject.h"
#include "stored/kv_scales.h"
#include "sweep/sweep_inputs.h"

namespace kvcal {
namespace {

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
    const std::vector<Sample> samples = samples_of(observation.num_samples, observation.seed);
    Statistics statistics;
    calibrate_samples(subject_, run_of(samples),
                      {.kv_forward = KvForward::kExact, .observes_all = observation.observes_all},
                      &statistics, context_.diagnostics);
    Provenance& origin = statistics.origin;
    origin = model_origin();
    origin.model_config = dump_json(subject_.model_dir.config());
    add_text("exact", origin);
    set_samples(samples, origin);
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

  std::vector<Sample> samples_of(int64_t count, std::optional<uint64_t> seed) const {
    return calibration_samples(context_.sweep, subject_, count, seed, context_.diagnostics);
  }

  CalibrationRun run_of(const std::vector<Sample>& samples) const {
    const DeviceOptions device = device_of(context_.device, context_.sweep, model_);
    return {
        .backends = {&context_.backend},
        .samples = samples,
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
    if (const Json columns = to_json(text_source().records.columns); !columns.empty())
      origin.dataset_columns = columns.dump();
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
    const std::vector<Sample> samples = samples_of(*planned.num_samples, planned.seed);
    set_samples(samples, origin);
    return calibrate_samples(
        subject_, run_of(samples),
        {.kv_forward =
             planned.kv_forward == "quantized" ? KvForward::kQuantized : KvForward::kExact,
         .derive = {.kv_dtype = kv_dtype_},
         .compared_samples =
             chooses_by_attention(subject_.recipe) ? compared_samples(lengths_of(samples)) : 0},
        nullptr, context_.diagnostics);
  }

  /// The calibration as the checkpoint holds it: weights, inputs, and scales of K and V where the
  /// format has a place for them. Cells take those from the manifest.
  static Calibration written_part(Calibration calibration) {
    const Strategy strategy = resolved_strategy(calibration.kv_args);
    if (calibration.kv_format == fp8::Format::kE5m2 || strategy == Strategy::kChannel) {
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
  PlannedModel subject_;
  KvDType kv_dtype_ = KvDType::kFp8E4m3;
};

/// The scales of one side of a layer: one number, or one for each head.
std::vector<Scale> scales_of_json(const Json& layer, const char* key) {
  const Json* value = find_field(layer, key);
  if (!value) fail_missing(key, "a scale, or one a head");
  std::vector<Scale> scales;
  const auto add = [&](const Json& one) {
    if (!one.is_number()) fail_kind(key, "a number or a list of numbers", one);
    const Scale scale{one.get<float>()};
    if (!is_usable(scale)) fail("key '", key, "' holds ", scale.value, ", expected ", kUsableScale);
    scales.push_back(scale);
  };
  if (value->is_array()) {
    for (const Json& one : *value) add(one);
  } else {
    add(*value);
  }
  return scales;
}

/// The scales of every layer that a manifest holds; those of ignored layers are null there.
std::vector<LayerKvScales> scales_of_manifest(const Json& manifest, const ModelConfig& config) {
  std::vector<LayerKvScales> all(static_cast<size_t>(config.num_hidden_layers));
  for (const Json& layer : required_list(manifest, "layers", "a list of layers")) {
    LayerKvScales& scales = all.at(static_cast<size_t>(required_int(layer, "layer")));
    scales.ignored = !find_field(layer, "k_scale");
    if (scales.ignored) continue;
    scales.k = scales_of_json(layer, "k_scale");
    scales.v = scales_of_json(layer, "v_scale");
    if (find_field(layer, "q_scale")) scales.q = scales_of_json(layer, "q_scale");
  }
  return all;
}

std::string path_of(const TaskContext& context, const Cell& cell) {
  const Sweep& sweep = context.sweep;
  if (!sweep.plan.has_own_weights(cell)) return sweep.file.models[cell.model].path.string();
  return context.folder.checkpoint(sweep.plan.calibrations[*cell.calibration].fingerprint).string();
}

/// The weights that cells run, their model's own or those of a calibration, and the scales of their
/// caches. The calibrations exist.
class CellWeights {
 public:
  /// cell: any of the cells.
  CellWeights(const TaskContext& context, const Cell& cell, bool has_tokenizer)
      : context_(context),
        model_(path_of(context, cell), device_of(context.device, context.sweep, cell.model),
               has_tokenizer, context.diagnostics, &context.backend, context.sweep.inputs.family) {}

  LoadedModel& model() { return model_; }
  /// The scales as Decoder::make_cache takes them. Throws Error where the cell's source has none.
  std::vector<LayerKvScales> scales_of(const Cell& cell) const {
    if (!cell.scales) return {};
    const ScaleSource& source = context_.sweep.file.scales[*cell.scales];
    if (source.kind == ScaleSource::Kind::kCalibrated) {
      const fs::path file = context_.folder.calibration(
          context_.sweep.plan.calibrations[*cell.calibration].fingerprint);
      const auto manifest = context_.folder.read_piece(file);
      if (!manifest)
        fail(file.string(), ": the cell's calibration is not there, or not as it was written");
      auto scales =
          in_context(file.string(), [&] { return scales_of_manifest(*manifest, model_.config); });
      const Json* type = member(*manifest, "recipe", "kv_cache_scheme", "type");
      const bool is_int8 = type && *type == "int";
      return scales_as(cell.cache, std::move(scales),
                       is_int8 ? KvFormat::int8() : KvFormat(fp8::Format::kE4m3Fn));
    }
    CacheOptions cache;
    cache.unit_scales = source.kind == ScaleSource::Kind::kUnit;
    if (source.kind == ScaleSource::Kind::kFile) cache.scales = source.path.string();
    return kvcal::scales_of(cache, model_, cell.cache, context_.diagnostics);
  }

 private:
  const TaskContext& context_;
  LoadedModel model_;
};

struct ScoredCell {
  const Cell* cell = nullptr;
  std::vector<LayerKvScales> scales;
};

class Evaluation {
 public:
  Evaluation(const TaskContext& context, const Cell& first)
      : context_(context),
        device_(device_of(context.device, context.sweep, first.model)),
        weights_(context, first, false) {
    if (context.sweep.plan.has_own_weights(first))
      other_reference_.emplace(context.sweep.file.models[first.model].path.string(), device_, false,
                               context.diagnostics, &context.backend, context.sweep.inputs.family);
  }

  /// Throws Error where the cell's scales cannot be had.
  void add(const Cell& cell) { cells_.push_back({&cell, weights_.scales_of(cell)}); }

  void run() {
    if (cells_.empty()) return;
    const SweepEvaluation& text = context_.sweep.file.evaluation;
    const std::vector<ScoredSequence> sequences =
        read_sequences(text.dataset, reference().model_dir.path(), reference().config.vocab_size,
                       text, context_.diagnostics);
    Scorer scorer = make_scorer();
    std::vector<SequenceScores> scores =
        score_all(scorer, sequences, context_.diagnostics, "scoring");
    std::erase_if(scores, [](const SequenceScores& one) { return one.positions.empty(); });
    for (size_t i = 0; i < cells_.size(); ++i)
      context_.folder.write_piece(context_.folder.cell(cells_[i].cell->fingerprint),
                                  result_json(i, scores));
  }

 private:
  /// The model without changes, whose 16-bit cache is what all cells are compared with.
  LoadedModel& reference() { return other_reference_ ? *other_reference_ : weights_.model(); }

  Scorer make_scorer() {
    std::vector<ScoredModel> models;
    for (const ScoredCell& one : cells_)
      models.push_back({weights_.model().decoder, one.cell->cache, one.scales});
    return {
        std::move(models),
        ScoredModel{reference().decoder, unquantized_cache_dtype(reference().config), no_scales_},
        device_.threads};
  }

  Json result_json(size_t index, const std::vector<SequenceScores>& scores) {
    const ScoredCell& one = cells_[index];
    const Likelihood all = summarize(scores, index);
    Json sequences = Json::array();
    for (const SequenceScores& sequence : scores) {
      const Likelihood part = summarize({&sequence, 1}, index);
      sequences.push_back(
          {{"num_tokens", part.num_tokens}, {"nll", part.nll}, {"kl_mean", *part.kl_mean}});
    }
    Json json = {{"id", one.cell->id}, {"fingerprint", one.cell->fingerprint}};
    json["cell"] = coordinates_json(*one.cell, context_.sweep.file);
    json["result"] = {{"num_tokens", all.num_tokens},
                      {"perplexity", all.perplexity},
                      {"nll", all.nll},
                      {"kl_mean", *all.kl_mean},
                      {"kl_stderr", *all.kl_stderr},
                      {"kl_p99", *all.kl_p99},
                      {"kl_max", *all.kl_max},
                      {"top1_agreement", *all.top1_agreement},
                      {"reference_perplexity", *all.reference_perplexity},
                      {"perplexity_increase", *all.perplexity_increase},
                      {"bytes_per_token",
                       KvCache::bytes_per_token(reference().config, one.cell->cache, one.scales)},
                      {"weight_bytes", tensor_bytes(weights_.model().model_dir)}};
    json["sequences"] = std::move(sequences);
    return json;
  }

  const TaskContext& context_;
  DeviceOptions device_;
  CellWeights weights_;
  std::optional<LoadedModel> other_reference_;  ///< where the cells run other weights
  std::vector<ScoredCell> cells_;
  const std::vector<LayerKvScales> no_scales_;
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

void evaluate_cells(const TaskContext& context, const std::vector<size_t>& cells) {
  const SweepPlan& plan = context.sweep.plan;
  Evaluation evaluation(context, plan.cells[cells.at(0)]);
  for (const size_t index : cells) {
    const Cell& cell = plan.cells[index];
    try {
      evaluation.add(cell);
    } catch (const Error& error) {
      context.folder.write(context.folder.cell_error(cell.fingerprint),
                           {{"id", cell.id}, {"error", error.message()}});
    }
  }
  evaluation.run();
}

void answer_questions(const TaskContext& context, const Cell& cell) {
  CellWeights weights(context, cell, true);
  LoadedModel& model = weights.model();
  GsmOptions asking = *context.sweep.file.gsm8k;
  asking.model_folder = model.model_dir.path();
  const GsmResult result = run_gsm8k(model.decoder, *model.tokenizer, cell.cache,
                                     weights.scales_of(cell), asking, context.diagnostics);
  Json json = {{"id", cell.id}, {"fingerprint", cell.answer_fingerprint}};
  json["cell"] = coordinates_json(cell, context.sweep.file);
  // Without times: the same results have the same bytes.
  const Json all = to_json(result);
  for (const auto& [key, value] : all.items())
    if (key.starts_with("exact_match") || key.starts_with("num_")) json["result"][key] = value;
  json["answers"] = Json::array();
  for (const GsmAnswer& answer : result.answers) json["answers"].push_back(to_json(answer));
  context.folder.write_piece(context.folder.cell(cell.answer_fingerprint), json);
}

}  // namespace kvcal
