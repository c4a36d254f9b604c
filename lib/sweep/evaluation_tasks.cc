#include "sweep/task_context.h"

#include <optional>

#include "eval/gsm8k.h"
#include "eval/likelihood.h"
#include "eval/sequences.h"
#include "quant/usable_scale.h"
#include "run/loaded_model.h"
#include "run/subject.h"
#include "stored/kv_scales.h"
#include "sweep/sweep_inputs.h"

namespace kvcal {
namespace {

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
  const Json* layers = find_field(manifest, "layers");
  if (!layers || !layers->is_array()) fail_missing("layers", "a list of layers");
  for (const Json& layer : *layers) {
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
  CellWeights(const TaskContext& context, const Cell& cell, bool has_tokenizer);

  LoadedModel& model() { return model_; }
  /// The scales as Decoder::make_cache takes them. Throws Error where the cell's source has none.
  std::vector<LayerKvScales> scales_of(const Cell& cell) const;

 private:
  const TaskContext& context_;
  LoadedModel model_;
};

CellWeights::CellWeights(const TaskContext& context, const Cell& cell, bool has_tokenizer)
    : context_(context),
      model_(path_of(context, cell), device_of(context.device, context.sweep, cell.model),
             has_tokenizer, context.diagnostics, &context.backend, context.sweep.inputs.family) {}

std::vector<LayerKvScales> CellWeights::scales_of(const Cell& cell) const {
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
    return scales_as(cell.cache, std::move(scales));
  }
  CacheOptions cache;
  cache.unit_scales = source.kind == ScaleSource::Kind::kUnit;
  if (source.kind == ScaleSource::Kind::kFile) cache.scales = source.path.string();
  return kvcal::scales_of(cache, model_, cell.cache, context_.diagnostics);
}

/// A cell that is being scored.
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
                       {.num_sequences = text.num_samples,
                        .max_seq_length = text.max_seq_length,
                        .stride = text.stride,
                        .records = text.records},
                       context_.diagnostics);
    Scorer scorer = make_scorer();
    int64_t done = 0, total = 0;
    for (const ScoredSequence& one : sequences) total += static_cast<int64_t>(one.ids.size());
    std::vector<SequenceScores> scores;
    for (const ScoredSequence& one : sequences) {
      if (one.ids.size() > one.first_scored)
        scores.push_back(
            in_context(one.place, [&] { return scorer.score(one.ids, one.first_scored); }));
      done += static_cast<int64_t>(one.ids.size());
      context_.diagnostics.progress("scoring", done, total, "tokens");
    }
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
  const SweepGsm8k& asked = *context.sweep.file.gsm8k;
  GsmOptions asking;
  asking.dataset = asked.dataset;
  asking.fewshot_dataset = asked.fewshot_dataset;
  asking.model_folder = model.model_dir.path();
  asking.num_fewshot = asked.num_fewshot;
  asking.limit = asked.limit;
  asking.max_gen_toks = asked.max_gen_toks;
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
