#include "run/smooth_checkpoint.h"

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
#include "run/output_files.h"
#include "run/process_limit.h"
#include "run/subject.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// One pass over the samples; [num_hidden_layers], empty where a layer has no cache of its own.
std::vector<ChannelAmax> observe_channels(const CalibrationSubject& subject,
                                          std::span<const Sample> samples,
                                          std::span<const std::unique_ptr<Backend>> backends,
                                          const SmoothRequest& request, const fs::path& scratch,
                                          Diagnostics& diagnostics) {
  const Weights weights(subject.model_dir, subject.config, &subject.quantization);
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  const ObservationRequest observation{.channels = true};
  LayerwiseOptions layerwise{
      .compute_type = compute_type_of(request.device, *backends[0], subject.config),
      .observation = observation,
      .longest_sample = longest_of(samples),
      .scratch_folder = scratch};
  if (backends[0]->is_host()) set_process_memory(layerwise, subject.config, request.device.threads);
  DividedForward forward(subject.config, weights, borrowed(backends), ids, layerwise, diagnostics);
  ExactPass pass(forward, subject.config, observation);
  AttentionReader reader(subject.config, samples);
  std::vector<ChannelAmax> all(static_cast<size_t>(subject.config.num_hidden_layers));
  for (int64_t layer = 0; layer <= pass.last_layer(); ++layer) {
    LayerObservation seen = pass.run(layer);
    if (subject.config.has_attention(layer)) reader.statistics(layer, &seen);  // refuses NaN
    if (seen.channels) all[static_cast<size_t>(layer)] = std::move(*seen.channels);
  }
  return all;
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
           {{"k", json_of(result.smoothing.k, result.smoothing.k_reason)},
            {"v", json_of(result.smoothing.v, result.smoothing.v_reason)}}},
          {"changed_tensors", result.written.changed},
          {"widened_tensors", result.written.widened},
          {"largest_error", result.written.largest_error}};
}

std::string side_text(const std::optional<Unevenness>& side, const std::string& reason) {
  if (!side) return "as it was: " + reason;
  std::ostringstream text;
  text << std::setprecision(3) << "the largest channel of a head is " << side->before
       << " times the mean one, now " << side->after;
  return text.str();
}

/// Of a request that names its data set.
SmoothResult smooth(const SmoothRequest& request, Diagnostics& diagnostics) {
  const std::string recipe(kDefaultRecipe);
  const CalibrationSubject subject =
      make_subject(read_recipe(recipe), recipe, request.model, diagnostics, request.family);
  check_can_be_rewritten(subject.model_dir);
  in_context(request.model, [&] { check_can_be_smoothed(subject.config); });
  check_target(subject.model_dir, request.output);
  check_keeps_inputs(request.output, {request.model, request.dataset, request.family.file()});
  const auto dataset = open_dataset(request.dataset, {.records = request.records});
  const std::vector<Sample> samples = samples_for(subject, *dataset, request.samples, diagnostics);
  AtomicDirectory output(request.output, request.overwrite);
  SmoothResult result;
  result.num_samples = std::ssize(samples);
  result.num_tokens = tokens_of(samples);
  {
    const auto backends = open_backends(request.device, diagnostics);
    result.smoothing =
        smoothing_of(subject.config, observe_channels(subject, samples, backends, request,
                                                      output.target().parent_path(), diagnostics));
  }
  ThreadPool pool(request.device.threads);
  result.written = write_rewritten_checkpoint(subject.model_dir, subject.config,
                                              result.smoothing.factors, pool, output.path());
  result.manifest = manifest_of(request, subject, *dataset, result);
  write_text_file(output.path() / kManifestName, dump_json(result.manifest));
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
          {"K", side_text(result.smoothing.k, result.smoothing.k_reason)},
          {"V", side_text(result.smoothing.v, result.smoothing.v_reason)},
          {"changed", changed},
          {"function", written.largest_error == 0.0 ? "the same, bit for bit"
                                                    : "the same, but for rounding of norms"}};
}

}  // namespace kvcal
