#include "sweep/evaluation_tasks.h"

#include <algorithm>
#include <optional>

#include "eval/gsm8k.h"
#include "eval/likelihood.h"
#include "eval/sequences.h"
#include "sweep/cell_weights.h"
#include "sweep/sweep_inputs.h"

namespace kvcal {
namespace {

int64_t weight_bytes(const ModelDir& model) {
  uint64_t bytes = 0;
  for (const std::string& name : model.tensor_names()) bytes += model.tensor(name).bytes.size();
  return static_cast<int64_t>(bytes);
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
                               context.diagnostics, &context.backend);
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
                        .stride = text.stride},
                       context_.diagnostics);
    Scorer scorer = make_scorer();
    int64_t done = 0, total = 0;
    for (const ScoredSequence& one : sequences) total += static_cast<int64_t>(one.ids.size());
    std::vector<SequenceScores> scores;
    for (const ScoredSequence& one : sequences) {
      if (one.ids.size() > one.first_scored)
        scores.push_back(scorer.score(one.ids, one.first_scored));
      done += static_cast<int64_t>(one.ids.size());
      context_.diagnostics.progress("scoring", done, total, "tokens");
    }
    for (size_t i = 0; i < cells_.size(); ++i)
      context_.folder.write(context_.folder.cell(cells_[i].cell->fingerprint),
                            result_json(i, scores));
  }

 private:
  /// The model without changes, whose 16-bit cache is what all cells are compared with.
  LoadedModel& reference() { return other_reference_ ? *other_reference_ : weights_.model(); }

  Scorer make_scorer() {
    std::vector<ScoredModel> models;
    for (const ScoredCell& one : cells_)
      models.push_back({weights_.model().decoder, one.cell->kv_cache_dtype, one.scales});
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
    json["result"] = {
        {"num_tokens", all.num_tokens},
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
         KvCache::bytes_per_token(reference().config, one.cell->kv_cache_dtype, one.scales)},
        {"weight_bytes", weight_bytes(weights_.model().model_dir)}};
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
  const GsmResult result = run_gsm8k(model.decoder, *model.tokenizer, cell.kv_cache_dtype,
                                     weights.scales_of(cell), asking, context.diagnostics);
  Json json = {{"id", cell.id}, {"fingerprint", cell.answer_fingerprint}};
  json["cell"] = coordinates_json(cell, context.sweep.file);
  // Without times: the same results have the same bytes.
  const Json all = to_json(result);
  for (const auto& [key, value] : all.items())
    if (key.starts_with("exact_match") || key.starts_with("num_")) json["result"][key] = value;
  json["answers"] = Json::array();
  for (const GsmAnswer& answer : result.answers) json["answers"].push_back(to_json(answer));
  context.folder.write(context.folder.cell(cell.answer_fingerprint), json);
}

}  // namespace kvcal
