#include "sweep/sweep_estimate.h"

#include <algorithm>

#include "eval/generate.h"
#include "eval/gsm8k.h"
#include "eval/sequences.h"
#include "run/subject.h"
#include "stored/weights.h"
#include "sweep/sweep_inputs.h"

namespace kvcal {
namespace {

/// Tokens of a word problem: of the prompt after the shared examples with the answer, and of all
/// of it.
constexpr double kTokensPerQuestion = 350.0, kAnswerTokens = 1200.0;
/// The time of a generated token, in a batch, over that of a token of a prompt.
constexpr double kDecoding = 8.0;

}  // namespace

SweepEstimate::ModelSize SweepEstimate::size_of(const SweepModel& model,
                                                const std::string& compute_dtype) const {
  const ModelDir dir(model.path);
  const ModelConfig config = read_model_config(dir, sweep_.inputs.family);
  ModelSize size;
  const Shape embedding{config.vocab_size, config.embedding_size};
  const double active_experts = config.moe.num_experts == 0
                                    ? 1.0
                                    : static_cast<double>(config.moe.experts_per_token) /
                                          static_cast<double>(config.moe.num_experts);
  for (const std::string& name : dir.tensor_names()) {
    const TensorView& tensor = dir.tensor(name);
    const double count = static_cast<double>(element_count(tensor.shape));
    size.all_weights += count;
    if (tensor.shape.rank() < 2 || tensor.shape == embedding) continue;
    const bool is_routed = name.find(".experts.") != std::string::npos;
    size.active_weights += is_routed ? count * active_experts : count;
  }
  size.head_weights = static_cast<double>(config.vocab_size * config.embedding_size);
  for (const int64_t layer : config.attention_layers()) {
    size.attended_width += static_cast<double>(config.attention(layer).query_width());
    if (config.has_own_cache(layer))
      size.cache_values += static_cast<double>(config.cache(layer).width());
  }
  size.hidden_size = static_cast<double>(config.hidden_size);
  size.layer_numbers = static_cast<double>(config.num_hidden_layers * config.hidden_size);
  size.vocab_size = static_cast<double>(config.vocab_size);
  size.weight_bytes = size.all_weights * (compute_dtype == "float32" ? 4.0 : 2.0);
  return size;
}

void SweepEstimate::read_texts(size_t model, Diagnostics& diagnostics) {
  const PlannedModel subject =
      make_subject(statistics_recipe(), "statistics", sweep_.file.models[model].path.string(),
                   diagnostics, sweep_.inputs.family);
  const SweepEvaluation& text = sweep_.file.evaluation;
  for (const ScoredSequence& one : read_sequences(text.dataset, subject.model_dir.path(),
                                                  subject.config.vocab_size, text, diagnostics)) {
    const auto length = static_cast<int64_t>(one.ids.size());
    models_[model].evaluation_tokens += length;
    models_[model].longest = std::max(models_[model].longest, length);
  }
  const auto add = [&](size_t of, std::optional<int64_t> samples, std::optional<uint64_t> seed) {
    if (of != model || !samples || calibration_tokens_.contains({model, *samples, seed})) return;
    int64_t& tokens = calibration_tokens_[{model, *samples, seed}];
    tokens = tokens_of(calibration_samples(sweep_, subject, *samples, seed, diagnostics));
  };
  for (const PlannedCalibration& one : sweep_.plan.calibrations)
    add(one.model, one.num_samples, one.seed);
}

SweepEstimate::SweepEstimate(const DeviceOptions& device, size_t jobs, const Sweep& sweep,
                             Backend& backend, Diagnostics& diagnostics)
    : sweep_(sweep) {
  for (size_t i = 0; i < sweep.file.models.size(); ++i) {
    models_.push_back(size_of(sweep.file.models[i], sweep.inputs.compute_dtype[i]));
    read_texts(i, diagnostics);
  }
  if (const auto& asked = sweep.file.gsm8k) {
    const size_t questions = read_gsm_records(asked->dataset, "test", asked->limit).size();
    answer_tokens_ = static_cast<int64_t>(kTokensPerQuestion * static_cast<double>(questions));
  }
  const ModelConfig config =
      read_model_config(ModelDir(sweep.file.models[0].path), sweep.inputs.family);
  // Tasks that run at a time on one host divide its threads.
  const size_t sharing = backend.is_host() ? jobs : 1;
  rate_ = measure_rate(backend, compute_type_of(device_of(device, sweep, 0), backend, config),
                       num_threads(device));
  rate_.flop /= static_cast<double>(sharing);
  rate_.pass_seconds *= static_cast<double>(sharing);
  rate_.logit_seconds *= static_cast<double>(jobs);
}

const SweepEstimate::ModelSize& SweepEstimate::size_of(const SweepTask& task) const {
  return models_[model_of(task, sweep_.plan)];
}

int64_t SweepEstimate::tokens(const SweepTask& task) const {
  const size_t part = task.parts.at(0);
  switch (task.kind) {
    case SweepTask::Kind::kObserve: {
      const Observation& one = sweep_.plan.observations[part];
      return calibration_tokens_.at({one.model, one.num_samples, one.seed});
    }
    case SweepTask::Kind::kCalibrate: {
      const PlannedCalibration& one = sweep_.plan.calibrations[part];
      if (one.observation || !one.num_samples) return 0;
      return calibration_tokens_.at({one.model, *one.num_samples, one.seed});
    }
    case SweepTask::Kind::kAnswer:
      return answer_tokens_;
    case SweepTask::Kind::kEvaluate:
      break;
  }
  return size_of(task).evaluation_tokens * static_cast<int64_t>(task.parts.size() + 1);
}

double SweepEstimate::first_guess(const SweepTask& task) const {
  const ModelSize& size = size_of(task);
  const auto count = static_cast<double>(tokens(task));
  const auto forward_work = [&](double length) {
    return count * (2.0 * size.active_weights + 2.0 * length * size.attended_width);
  };
  const double head_work = count * 2.0 * size.head_weights, numbers = count * size.layer_numbers;
  switch (task.kind) {
    case SweepTask::Kind::kEvaluate: {
      const double work = forward_work(static_cast<double>(size.longest)) + head_work;
      return kStartSeconds + rate_.seconds_of(work, numbers) +
             count * size.vocab_size * rate_.logit_seconds;
    }
    case SweepTask::Kind::kAnswer:
      return kStartSeconds +
             rate_.seconds_of(kDecoding * (forward_work(kAnswerTokens) + head_work), numbers);
    case SweepTask::Kind::kObserve:
    case SweepTask::Kind::kCalibrate:
      break;
  }
  const double length =
      sweep_.file.calibration ? static_cast<double>(sweep_.file.calibration->max_seq_length) : 0.0;
  return kStartSeconds + rate_.seconds_of(kObservingWork * forward_work(length), numbers);
}

double SweepEstimate::seconds(const SweepTask& task) const {
  const auto known = known_.find(task.kind);
  const double factor = known == known_.end() ? 1.0 : known->second.seconds / known->second.guess;
  return factor * first_guess(task);
}

void SweepEstimate::learn(SweepTask::Kind kind, double guess, double seconds) {
  if (!(guess > 0.0) || !(seconds > 0.0)) return;
  Known& known = known_[kind];
  known.guess += guess;
  known.seconds += seconds;
}

double SweepEstimate::memory(const SweepTask& task) const {
  // The packed matrices, and the pages of the checkpoint that are being read; K and V as stored,
  // and as attention lays them out.
  constexpr double kProgram = 64e6, kPacked = 1.2, kCacheBytes = 3.0, kStepRows = 256.0;
  const ModelSize& size = size_of(task);
  const double weights = kPacked * size.weight_bytes, cache = kCacheBytes * size.cache_values;
  switch (task.kind) {
    case SweepTask::Kind::kAnswer:
      return kProgram + weights + static_cast<double>(kTextsTogether) * cache * kAnswerTokens;
    case SweepTask::Kind::kEvaluate: {
      const Cell& cell = sweep_.plan.cells[task.parts.at(0)];
      const double models = sweep_.plan.has_own_weights(cell) ? 2.0 : 1.0;
      const double caches =
          static_cast<double>(task.parts.size() + 1) * cache * static_cast<double>(size.longest);
      // Logits of a step, twice.
      return kProgram + models * weights + caches +
             2.0 * kStepRows * size.vocab_size * sizeof(float);
    }
    case SweepTask::Kind::kObserve:
    case SweepTask::Kind::kCalibrate:
      break;
  }
  return kProgram + static_cast<double>(tokens(task)) * size.hidden_size * sizeof(float) +
         0.2 * size.weight_bytes;
}

}  // namespace kvcal
