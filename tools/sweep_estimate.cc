#include "sweep_estimate.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <tuple>

#include "core/diagnostics.h"
#include "eval/gsm8k.h"
#include "eval/gsm8k_text.h"
#include "eval/sequences.h"
#include "run/calibration_run.h"
#include "stored/weights.h"
#include "sweep_devices.h"

namespace kvcal {
namespace {

/// What a whole forward pass reaches of the rate of its products alone: the rest is norms, RoPE,
/// softmax, and matrices that are smaller.
constexpr double kPartOfProducts = 0.5;
/// Of one thread: softmax of two models in double precision, and their KL.
constexpr double kSecondsPerLogit = 12e-9;
/// Of a process: the program, its threads, the model's files.
constexpr double kStartSeconds = 0.3;
/// Of a word problem: tokens of the prompt behind the shared examples and of the answer, and what
/// all of them take together.
constexpr double kTokensPerQuestion = 350.0, kAnswerTokens = 1200.0;
/// A token that is written, beside others, to one that is read.
constexpr double kDecoding = 4.0;
/// A pass that observes multiplies K and V twice and makes histograms.
constexpr double kObserving = 1.2;

/// Products per second of matrices of this type.
double product_rate(Backend& backend, ComputeType type) {
  constexpr int64_t kRows = 256, kSize = 1024;
  std::vector<float> values(static_cast<size_t>(kSize * kSize), 0.5f);
  const std::vector<TensorView> parts{
      {"w", DType::kF32, Shape{kSize, kSize}, std::as_bytes(std::span(values))}};
  const auto weight = backend.pack(parts, type);
  const Buffer x = backend.allocate(static_cast<size_t>(kRows * kSize) * bytes_of(type));
  backend.fill_zero(x.data(), static_cast<size_t>(kRows * kSize) * bytes_of(type));
  const Buffer out = backend.allocate(static_cast<size_t>(kRows * kSize) * sizeof(float));
  std::vector<float> host(static_cast<size_t>(kRows * kSize));
  const auto multiply = [&](int times) {
    for (int i = 0; i < times; ++i)
      backend.matmul({.x = x.data(), .weight = *weight, .rows = kRows, .out = out.as<float>()});
    backend.copy_out(out.data(), std::as_writable_bytes(std::span(host)));
  };
  multiply(1);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  int times = 0;
  std::chrono::duration<double> passed{};
  for (int more = 1; passed.count() < 0.1; more *= 2) {
    multiply(more);
    times += more;
    passed = Clock::now() - begin;
  }
  return 2.0 * static_cast<double>(kRows * kSize * kSize) * times / passed.count();
}

}  // namespace

SweepEstimate::ModelSize SweepEstimate::size_of(const SweepModel& model,
                                                const std::string& compute_dtype) {
  const ModelDir dir(model.path);
  const ModelConfig config = read_model_config(dir);
  ModelSize size;
  const Shape embedding{config.vocab_size, config.hidden_size};
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
  size.head_weights = static_cast<double>(config.vocab_size * config.hidden_size);
  int64_t attending = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    attending += config.has_attention(layer) ? 1 : 0;
  size.attended_width = static_cast<double>(attending * config.query_width());
  size.cache_values = static_cast<double>(attending * config.cache_heads() *
                                          (config.cache_k_dim() + config.cache_v_dim()));
  size.hidden_size = static_cast<double>(config.hidden_size);
  size.vocab_size = static_cast<double>(config.vocab_size);
  size.weight_bytes = size.all_weights * (compute_dtype == "float32" ? 4.0 : 2.0);
  return size;
}

void SweepEstimate::read_texts(size_t model, Diagnostics& diagnostics) {
  const CalibrationSubject subject = make_subject(
      statistics_recipe(), "statistics", sweep_.file.models[model].path.string(), diagnostics);
  const SweepEvaluation& text = sweep_.file.evaluation;
  for (const ScoredSequence& one :
       read_sequences(text.dataset, subject.model_dir.path(), subject.config.vocab_size,
                      {.num_sequences = text.num_samples,
                      .max_seq_length = text.max_seq_length,
                      .stride = text.stride},
                      diagnostics)) {
    const auto length = static_cast<int64_t>(one.ids.size());
    models_[model].evaluation_tokens += length;
    models_[model].longest = std::max(models_[model].longest, length);
  }
  const auto add = [&](size_t of, std::optional<int64_t> samples, std::optional<uint64_t> seed) {
    if (of != model || !samples || calibration_tokens_.contains({model, *samples, seed})) return;
    int64_t& tokens = calibration_tokens_[{model, *samples, seed}];
    const auto dataset = open_dataset(sweep_.file.calibration->dataset);
    for (const Sample& sample :
         samples_for(subject, *dataset,
                     {.num_calibration_samples = *samples,
                     .max_seq_length = sweep_.file.calibration->max_seq_length,
                     .shuffle_seed = seed},
                     diagnostics))
      tokens += static_cast<int64_t>(sample.ids.size());
  };
  for (const PlannedCalibration& one : sweep_.plan.calibrations)
    add(one.model, one.num_samples, one.seed);
}

SweepEstimate::SweepEstimate(const SweepOptions& options, const Sweep& sweep, Backend& backend,
                             Diagnostics& diagnostics)
    : sweep_(sweep) {
  for (size_t i = 0; i < sweep.file.models.size(); ++i) {
    models_.push_back(size_of(sweep.file.models[i], sweep.inputs.compute_dtype[i]));
    read_texts(i, diagnostics);
  }
  if (const auto& asked = sweep.file.gsm8k) {
    const size_t questions = read_gsm_records(asked->dataset, "test", asked->limit).size();
    answer_tokens_ = static_cast<int64_t>(kTokensPerQuestion * static_cast<double>(questions));
  }
  const ModelConfig config = read_model_config(ModelDir(sweep.file.models[0].path));
  // Tasks that run at a time on one host divide its threads.
  const size_t jobs = num_jobs(options), sharing = backend.is_host() ? jobs : 1;
  logit_seconds_ =
      kSecondsPerLogit * static_cast<double>(jobs) / static_cast<double>(num_threads(options));
  rate_ = kPartOfProducts / static_cast<double>(sharing) *
          product_rate(backend, compute_type_of(device_of(options, sweep, 0), backend, config));
}

double SweepEstimate::forward_work(const ModelSize& size, double tokens, double length) const {
  return tokens * (2.0 * size.active_weights + 2.0 * length * size.attended_width);
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
  return models_[sweep_.plan.cells[part].model].evaluation_tokens *
         static_cast<int64_t>(task.parts.size() + 1);
}

double SweepEstimate::first_guess(const SweepTask& task) const {
  const size_t part = task.parts.at(0);
  const auto count = static_cast<double>(tokens(task));
  if (task.kind == SweepTask::Kind::kEvaluate) {
    const ModelSize& size = models_[sweep_.plan.cells[part].model];
    const double work = forward_work(size, count, static_cast<double>(size.longest)) +
                        count * 2.0 * size.head_weights;
    return kStartSeconds + work / rate_ + count * size.vocab_size * logit_seconds_;
  }
  if (task.kind == SweepTask::Kind::kAnswer) {
    const ModelSize& size = models_[sweep_.plan.cells[part].model];
    const double work = forward_work(size, count, kAnswerTokens) + count * 2.0 * size.head_weights;
    return kStartSeconds + kDecoding * work / rate_;
  }
  const bool observes = task.kind == SweepTask::Kind::kObserve;
  const ModelSize& size = models_[observes ? sweep_.plan.observations[part].model
                                           : sweep_.plan.calibrations[part].model];
  const double length =
      sweep_.file.calibration ? static_cast<double>(sweep_.file.calibration->max_seq_length) : 0.0;
  return kStartSeconds + kObserving * forward_work(size, count, length) / rate_;
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
  // The packed matrices, and of the checkpoint's pages those that are being read; of K and V what
  // is stored, and what attention lays them out in.
  constexpr double kProgram = 64e6, kPacked = 1.2, kCacheBytes = 3.0, kStepRows = 256.0;
  const size_t part = task.parts.at(0);
  if (task.kind == SweepTask::Kind::kAnswer) {
    const ModelSize& size = models_[sweep_.plan.cells[part].model];
    return kProgram + kPacked * size.weight_bytes +
           static_cast<double>(kGsmBatchSize) * kCacheBytes * size.cache_values * kAnswerTokens;
  }
  if (task.kind == SweepTask::Kind::kEvaluate) {
    const Cell& cell = sweep_.plan.cells[part];
    const ModelSize& size = models_[cell.model];
    const double models = sweep_.plan.has_own_weights(cell) ? 2.0 : 1.0;
    const double caches = static_cast<double>(task.parts.size() + 1) * kCacheBytes *
                          size.cache_values * static_cast<double>(size.longest);
    // Logits of a step, twice.
    return kProgram + models * kPacked * size.weight_bytes + caches +
           2.0 * kStepRows * size.vocab_size * sizeof(float);
  }
  const bool observes = task.kind == SweepTask::Kind::kObserve;
  const ModelSize& size = models_[observes ? sweep_.plan.observations[part].model
                                           : sweep_.plan.calibrations[part].model];
  return kProgram + static_cast<double>(tokens(task)) * size.hidden_size * sizeof(float) +
         0.2 * size.weight_bytes;
}

}  // namespace kvcal
