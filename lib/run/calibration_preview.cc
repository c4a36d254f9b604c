#include "run/calibration_preview.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/folder.h"
#include "core/text.h"
#include "export/writer.h"
#include "forward/divided_forward.h"
#include "forward/memory_plan.h"
#include "ranks/ranked_forward.h"
#include "run/command_paths.h"
#include "run/devices.h"
#include "run/smooth_checkpoint.h"
#include "state/run_state.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Bytes of the weights that a format with a checkpoint writes: once for all such formats.
uint64_t weight_bytes(const PlannedModel& subject) {
  uint64_t bytes = tensor_bytes(subject.model_dir);
  for (const PlannedLinear& linear : subject.plan.linears)
    if (const TensorView* weight = subject.model_dir.find(linear.module + ".weight"))
      bytes -= weight->bytes.size() - element_count(weight->shape);  // a byte an element
  return bytes;
}

struct Inputs {
  const CalibrateRequest& request;
  const PlannedModel& subject;
  const Weights& weights;
  std::span<const std::unique_ptr<Backend>> backends;
  std::span<const Sample> samples;
  std::vector<int64_t> lengths;  ///< of the samples
};

/// Work of rewriting the model first: a pass over its samples, and two over those compared.
double smoothing_work(const Inputs& inputs, const SampleWork& each) {
  const SampleOptions samples = smooth_request(inputs.request).samples;
  std::vector<int64_t> lengths;
  for (const int64_t length : inputs.lengths)
    if (std::ssize(lengths) < samples.num_calibration_samples)
      lengths.push_back(std::min(length, samples.max_seq_length));
  const auto compared = static_cast<size_t>(compared_samples(lengths));
  double work = 0.0;
  for (size_t i = 0; i < lengths.size(); ++i) work += (i < compared ? 3 : 1) * each.of(lengths[i]);
  return work;
}

double seconds_of(const Inputs& inputs, const DeviceRate& rate, int num_scored) {
  const SampleWork each = sample_work(inputs.subject.config, inputs.weights);
  double work = 0.0, tokens = 0.0, scored_work = 0.0, scored_tokens = 0.0;
  for (const int64_t length : inputs.lengths) {
    work += each.of(length);
    tokens += static_cast<double>(length);
    const int64_t scored = std::min(length, inputs.request.score.max_seq_length);
    scored_work += each.of(scored);
    scored_tokens += static_cast<double>(scored);
  }
  if (inputs.request.smooths) work += smoothing_work(inputs, each);
  const ModelConfig& config = inputs.subject.config;
  const auto devices = static_cast<double>(inputs.backends.size());
  const auto numbers = static_cast<double>(config.num_layers() * config.hidden_size);  // a token
  double seconds =
      kStartSeconds + rate.seconds_of(kObservingWork * work, tokens * numbers) / devices;
  if (num_scored == 0 || inputs.lengths.empty()) return seconds;
  // Sequences are taken to be as long as the samples.
  const double times = static_cast<double>(num_scored * inputs.request.score.num_sequences) /
                       static_cast<double>(inputs.lengths.size());
  const auto vocabulary = static_cast<double>(config.vocab_size);
  const double head = 2.0 * vocabulary * static_cast<double>(config.hidden_size) * scored_tokens;
  seconds += times * (rate.seconds_of(scored_work + head, scored_tokens * numbers) +
                      scored_tokens * vocabulary * rate.logit_seconds);
  return seconds;
}

/// The plan of the first device, whose part of the samples is as large as any.
void plan_memory(const Inputs& inputs, const LayerwiseOptions& given, CalibrationPreview& preview) {
  const Backend& backend = *inputs.backends[0];
  const ModelConfig& config = inputs.subject.config;
  LayerwiseOptions options = given;
  options.observation =
      observation_of(inputs.subject.plan, calibration_options(inputs.request, inputs.lengths));
  options.shows_hidden = preview.state_bytes > 0;
  if (backend.is_host()) set_process_memory(options, config, inputs.request.device.threads);
  const size_t first = DividedForward::divide(inputs.lengths, inputs.backends.size()).at(1);
  const std::span<const int64_t> own(inputs.lengths.data(), first);
  options.embedded = embedded_of(std::span(inputs.samples).first(first));
  const int64_t tokens = std::accumulate(own.begin(), own.end(), int64_t{0});
  const MemoryNeeds needs = memory_needs(config, inputs.weights, backend, options, own);
  const MemoryPlan plan(config, inputs.weights, backend, options, own);
  const int64_t batch = std::min(plan.batch_tokens(), tokens);
  const int64_t longest = std::ranges::max(inputs.lengths);
  const uint64_t hidden =
      static_cast<uint64_t>(tokens * config.carried_width(longest)) * sizeof(float);
  // Hidden states lie in memory together, or in a scratch file.
  const bool are_in_memory = hidden <= plan.hidden_bytes(batch).value_or(hidden);
  preview.memory_bytes = needs.with_batch(batch) + (are_in_memory ? hidden : 0);
  if (!are_in_memory && backend.is_host()) preview.scratch_bytes = hidden;
  preview.memory_available = plan.limit();
}

uint64_t state_bytes(const CalibrateRequest& request, const PlannedModel& subject,
                     std::span<const Sample> samples) {
  if (state_folder(request.state, request.output.output).empty()) return 0;
  return RunState::bytes(std::ssize(samples), tokens_of(samples),
                         subject.config.carried_width(longest_of(samples)));
}

void check_is_free(const OutputOptions& output) {
  if (!output.output.empty() && !output.overwrite && is_there(output.output))
    fail(output.output, ": exists; pass --overwrite to replace it");
}

}  // namespace

uint64_t output_bytes(const CalibrateRequest& request, const PlannedRun& plan) {
  const bool has_weights =
      !request.output.scales_only &&
      std::ranges::any_of(plan.formats->names(), [](const std::string& format) {
        return any_has(format, &OutputFormat::is_checkpoint);
      });
  return has_weights ? weight_bytes(*plan.subject) : 0;
}

CalibrationPreview preview_calibration(CalibrateRequest request, int num_scored,
                                       Diagnostics& diagnostics) {
  CalibrationPreview preview;
  PlannedRun plan;
  plan_run(request, plan, diagnostics);
  check_is_free(request.output);
  const PlannedModel& subject = *plan.subject;
  const auto backends = open_backends(request.device, diagnostics);
  preview.device = description_of(backends);
  preview.output_bytes = output_bytes(request, plan);
  if (request.smooths) preview.smoothed_bytes = tensor_bytes(subject.model_dir);
  preview.disk = existing_folder_of(request.output.output);
  preview.free_bytes = free_bytes_at(preview.disk);
  if (!runs_text(request, subject)) return preview;
  const LayerwiseOptions layerwise =
      layerwise_options(request, *backends[0], subject.config, preview.disk);
  const auto dataset = open_dataset(request.dataset, {.records = request.records});
  const std::vector<Sample> samples =
      samples_for(subject, *dataset, request.records, request.samples, diagnostics);
  const Weights weights(subject.model_dir, subject.config, &subject.quantization);
  const Inputs inputs{request, subject, weights, backends, samples, lengths_of(samples)};
  preview.num_samples = samples.size();
  preview.num_tokens = tokens_of(samples);
  preview.state_bytes = state_bytes(request, subject, samples);
  const DeviceRate rate =
      measure_rate(*backends[0], layerwise.compute_type, num_threads(request.device));
  preview.seconds = seconds_of(inputs, rate, num_scored);
  preview.busy_seconds = preview.seconds / rate.share;
  plan_memory(inputs, layerwise, preview);
  return preview;
}

std::string duration_text(double seconds) {
  return time_text(std::max(1.0, seconds));
}

std::string estimate_text(double seconds, double busy_seconds) {
  const std::string quiet = duration_text(seconds), busy = duration_text(busy_seconds);
  if (busy_seconds <= seconds || busy == quiet) return "about " + quiet;
  return "about " + quiet + ", or " + busy + " while other programs are as busy as now";
}

Json to_json(const CalibrationPreview& preview) {
  return {{"device", preview.device},
          {"num_samples", preview.num_samples},
          {"num_tokens", preview.num_tokens},
          {"seconds", std::round(preview.seconds)},
          {"busy_seconds", std::round(preview.busy_seconds)},
          {"memory_bytes", preview.memory_bytes},
          {"memory_available_bytes", or_null(preview.memory_available)},
          {"disk",
           {{"output_bytes", preview.output_bytes},
            {"state_bytes", preview.state_bytes},
            {"scratch_bytes", preview.scratch_bytes},
            {"smoothed_bytes", preview.smoothed_bytes},
            {"free_bytes", or_null(preview.free_bytes)}}}};
}

LabelledLines preview_lines(const CalibrationPreview& preview) {
  LabelledLines lines{{"device", preview.device}};
  if (preview.num_samples == 0) {
    lines.emplace_back("samples", "none: the recipe calibrates nothing");
  } else {
    lines.emplace_back("samples", counted(preview.num_samples, "sample") + ", " +
                                      counted(preview.num_tokens, "token"));
    lines.emplace_back("time", estimate_text(preview.seconds, preview.busy_seconds));
    lines.emplace_back(
        "memory",
        "at most " + byte_text(preview.memory_bytes) +
            (preview.memory_available ? " of " + byte_text(*preview.memory_available) : ""));
  }
  std::string disk = "output " + byte_text(preview.output_bytes);
  if (preview.state_bytes > 0) disk += ", state up to " + byte_text(preview.state_bytes);
  if (preview.scratch_bytes > 0) disk += ", hidden states " + byte_text(preview.scratch_bytes);
  if (preview.smoothed_bytes > 0) disk += ", rewritten model " + byte_text(preview.smoothed_bytes);
  if (preview.free_bytes)
    disk += "; " + byte_text(*preview.free_bytes) + " are free at " + preview.disk.string() +
            (preview.has_room() ? "" : ": too little");
  lines.emplace_back("disk", disk);
  return lines;
}

}  // namespace kvcal
