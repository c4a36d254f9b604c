#include "run/smooth_checkpoint.h"

#include <functional>
#include <iomanip>
#include <sstream>

#include "calib/exact_pass.h"
#include "calib/observed_statistics.h"
#include "core/file.h"
#include "core/replaceable.h"
#include "datasets/named_dataset.h"
#include "export/writer.h"
#include "forward/divided_forward.h"
#include "hub/hub_cache.h"
#include "recipe/named_recipe.h"
#include "run/named_inputs.h"
#include "run/output_card.h"
#include "run/output_files.h"
#include "run/process_limit.h"
#include "run/subject.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Rows of K that all samples together keep, for a mean that is known to a 40th of the spread.
constexpr int64_t kKeyRows = 2048, kMostKeyRowsOfSample = 512;

/// One pass over the samples. see gets each layer that has a cache of its own.
void observe_channels(const CalibrationSubject& subject, std::span<const Sample> samples,
                      std::span<const std::unique_ptr<Backend>> backends,
                      const SmoothRequest& request, const fs::path& scratch,
                      Diagnostics& diagnostics,
                      const std::function<void(int64_t layer, const LayerObservation& seen)>& see) {
  const Weights weights(subject.model_dir, subject.config, &subject.quantization);
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  const auto count = std::max<int64_t>(1, std::ssize(samples));
  const bool is_aligned = request.cache == SmoothedFor::kFp8E4m3;
  const ObservationRequest observation{
      .channels = true,
      .key_rows = is_aligned ? std::min(kMostKeyRowsOfSample, (kKeyRows + count - 1) / count) : 0};
  LayerwiseOptions layerwise{
      .compute_type = compute_type_of(request.device, *backends[0], subject.config),
      .observation = observation,
      .longest_sample = longest_of(samples),
      .scratch_folder = scratch};
  if (backends[0]->is_host()) set_process_memory(layerwise, subject.config, request.device.threads);
  DividedForward forward(subject.config, weights, borrowed(backends), ids, layerwise, diagnostics);
  ExactPass pass(forward, subject.config, observation);
  AttentionReader reader(subject.config, samples);
  for (int64_t layer = 0; layer <= pass.last_layer(); ++layer) {
    LayerObservation seen = pass.run(layer);
    if (subject.config.has_attention(layer)) reader.statistics(layer, &seen);  // refuses NaN
    if (seen.channels) see(layer, seen);
  }
}

Smoothing observed_smoothing(const CalibrationSubject& subject, std::span<const Sample> samples,
                             const SmoothRequest& request, const fs::path& scratch,
                             Diagnostics& diagnostics) {
  const auto backends = open_backends(request.device, diagnostics);
  const auto layers = static_cast<size_t>(subject.config.num_hidden_layers);
  if (request.cache == SmoothedFor::kInt8) {
    std::vector<ChannelAmax> all(layers);
    observe_channels(subject, samples, backends, request, scratch, diagnostics,
                     [&](int64_t layer, const LayerObservation& seen) {
                       all[static_cast<size_t>(layer)] = *seen.channels;
                     });
    return smoothing_of(subject.config, all);
  }
  Smoothing smoothing{.factors = KvFactors(layers),
                      .v_reason = "an FP8 cache keeps the bits of every magnitude"};
  observe_channels(subject, samples, backends, request, scratch, diagnostics,
                   [&](int64_t layer, const LayerObservation& seen) {
                     LayerAlignment made =
                         align_layer(subject.config, layer, seen.key_rows, *seen.channels);
                     if (made.changed() == 0) return;
                     smoothing.factors[static_cast<size_t>(layer)] = made.factors;
                     smoothing.aligned.emplace(layer, std::move(made));
                   });
  if (smoothing.aligned.empty())
    smoothing.k_reason = "no constant part of it is large against what varies";
  return smoothing;
}

Json json_of(const std::map<int64_t, LayerAlignment>& aligned) {
  Json layers = Json::object();
  for (const auto& [layer, made] : aligned)
    layers[std::to_string(layer)] = {
        {"turned_pairs", made.turned},
        {"scaled_channels", made.scaled},
        {"shifted_channels", made.shifted},
        {"error", {{"before", made.error_before}, {"after", made.error_after}}}};
  return {{"smoothed", true}, {"layers", std::move(layers)}};
}

Json json_of(const std::optional<Unevenness>& side, const std::string& reason) {
  if (!side) return {{"smoothed", false}, {"reason", reason}};
  return {{"smoothed", true},
          {"largest_over_mean_channel", {{"before", side->before}, {"after", side->after}}}};
}

Json manifest_of(const SmoothRequest& request, const CalibrationSubject& subject,
                 const Dataset& dataset, const SmoothResult& result) {
  return {{"kvcal_version", request.version},
          {"created_by", "kvcal " + request.version},
          {"model",
           {{"path", name_of_model(subject.model_dir)},
            {"model_type", subject.config.model_type},
            {"sha256", subject.model_dir.sha256()}}},
          {"dataset",
           {{"path", name_of_source(request.dataset)},
            {"sha256", dataset.sha256()},
            {"num_samples", result.num_samples},
            {"num_tokens", result.num_tokens}}},
          {"smoothing",
           {{"for", name_of(request.cache)},
            {"k", result.smoothing.aligned.empty()
                      ? json_of(result.smoothing.k, result.smoothing.k_reason)
                      : json_of(result.smoothing.aligned)},
            {"v", json_of(result.smoothing.v, result.smoothing.v_reason)}}},
          {"changed_tensors", result.written.changed},
          {"widened_tensors", result.written.widened},
          {"rounded_tensors", result.written.rounded},
          {"largest_error", result.written.largest_error}};
}

std::string aligned_text(const std::map<int64_t, LayerAlignment>& aligned) {
  int64_t turned = 0, scaled = 0, shifted = 0;
  double before = 0.0, after = 0.0;
  for (const auto& [layer, made] : aligned) {
    turned += made.turned;
    scaled += made.scaled;
    shifted += made.shifted;
    before += made.error_before;
    after += made.error_after;
  }
  std::ostringstream text;
  text << std::setprecision(3) << turned << " pairs turned";
  if (scaled > 0) text << ", " << scaled << " scaled";
  if (shifted > 0) text << ", " << shifted << " channels without their mean";
  text << ", in " << aligned.size() << (aligned.size() == 1 ? " layer" : " layers")
       << "; the squared error of K in them is " << after / before << " times what it was";
  return text.str();
}

std::string side_text(const std::optional<Unevenness>& side, const std::string& reason) {
  if (!side) return "as it was: " + reason;
  std::ostringstream text;
  text << std::setprecision(3) << "the largest channel of a head is " << side->before
       << " times the mean one, now " << side->after;
  return text.str();
}

std::string function_text(const RewrittenCheckpoint& written, const Smoothing& smoothing) {
  if (!smoothing.aligned.empty())
    return written.rounded == 0 ? "the same, but for rounding in float32"
                                : "the same, but for one more rounding of " +
                                      std::to_string(written.rounded) + " tensors to 16 bits";
  return written.largest_error == 0.0 ? "the same, bit for bit"
                                      : "the same, but for rounding of norms";
}

/// Of a request that names its data set.
SmoothResult smooth(const SmoothRequest& request, Diagnostics& diagnostics) {
  const std::string recipe(kDefaultRecipe);
  const CalibrationSubject subject =
      make_subject(read_recipe(recipe), recipe, request.model, diagnostics, request.family);
  check_can_be_rewritten(subject.model_dir);
  in_context(request.model, [&] {
    if (request.cache == SmoothedFor::kInt8)
      check_can_be_smoothed(subject.config);
    else
      check_can_be_aligned(subject.config);
  });
  check_target(subject.model_dir, request.output);
  check_keeps_inputs(request.output, {request.model, request.dataset, request.family.file()});
  const auto dataset = open_dataset(request.dataset, {.records = request.records});
  const std::vector<Sample> samples = samples_for(subject, *dataset, request.samples, diagnostics);
  AtomicDirectory output(request.output, request.overwrite);
  SmoothResult result;
  result.num_samples = std::ssize(samples);
  result.num_tokens = tokens_of(samples);
  result.smoothing =
      observed_smoothing(subject, samples, request, output.target().parent_path(), diagnostics);
  ThreadPool pool(request.device.threads);
  result.written = write_rewritten_checkpoint(subject.model_dir, subject.config,
                                              result.smoothing.factors, pool, output.path());
  result.manifest = manifest_of(request, subject, *dataset, result);
  write_text_file(output.path() / kManifestName, dump_json(result.manifest));
  write_card(output.path(), "", subject.model_dir, result.manifest, {});
  output.commit();
  return result;
}

}  // namespace

SmoothResult smooth_checkpoint(const SmoothRequest& request, Diagnostics& diagnostics) {
  SmoothRequest settled = request;
  if (settled.dataset.empty()) settled.dataset = kDefaultDataset;
  return smooth(settled, diagnostics);
}

std::vector<std::pair<std::string, std::string>> smoothing_lines(const SmoothResult& result) {
  const RewrittenCheckpoint& written = result.written;
  std::string changed = std::to_string(written.changed) + " tensors";
  if (written.widened > 0)
    changed += ", of which " + std::to_string(written.widened) +
               " are float32 now: their dtype does not hold the values";
  return {{"samples", std::to_string(result.num_samples) + ", " +
                          std::to_string(result.num_tokens) + " tokens"},
          {"K", result.smoothing.aligned.empty()
                    ? side_text(result.smoothing.k, result.smoothing.k_reason)
                    : aligned_text(result.smoothing.aligned)},
          {"V", side_text(result.smoothing.v, result.smoothing.v_reason)},
          {"changed", changed},
          {"function", function_text(written, result.smoothing)}};
}

}  // namespace kvcal
