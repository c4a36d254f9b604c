#include "run/smooth_checkpoint.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <sstream>

#include "calib/statistics/observed_statistics.h"
#include "calib/summary/scale_summary.h"
#include "core/folder.h"
#include "core/output.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "datasets/named_dataset.h"
#include "export/writer.h"
#include "forward/divided_forward.h"
#include "hub/hub_cache.h"
#include "recipe/presets.h"
#include "run/calibration_run.h"
#include "run/command_output.h"
#include "run/command_paths.h"
#include "run/subject.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Rows of K that all samples together keep, for a mean that is known to a 40th of the spread.
constexpr int64_t kKeyRows = 2048, kMostKeyRowsOfSample = 512;

Json predicted_json(const CacheAttention& attention) {
  Json json = Json::object();
  if (attention.calibrated) json["calibrated"] = attention.calibrated->kl_mean;
  if (attention.unit) json["unit"] = attention.unit->kl_mean;
  return json;
}

Json json_of(const std::map<int64_t, LayerAlignment>& aligned, const AlignmentGain& gain) {
  Json layers = Json::object();
  for (const auto& [layer, made] : aligned) {
    Json& json = layers[std::to_string(layer)] = {
        {"turned_pairs", made.turned},
        {"scaled_channels", made.scaled},
        {"shifted_channels", made.shifted},
        {"error", {{"before", made.error_before}, {"after", made.error_after}}}};
    const auto was = gain.before.layers.find(layer), is = gain.after.layers.find(layer);
    if (was != gain.before.layers.end() && is != gain.after.layers.end())
      json["attention_kl"] = {{"before", to_json(weights_kl(was->second))},
                              {"after", to_json(weights_kl(is->second))}};
  }
  return {{"smoothed", true}, {"layers", std::move(layers)}};
}

Json json_of(const std::optional<Unevenness>& side, const std::string& reason) {
  if (!side) return {{"smoothed", false}, {"reason", reason}};
  return {{"smoothed", true},
          {"largest_over_mean_channel", {{"before", side->before}, {"after", side->after}}}};
}

Json smoothing_json(SmoothedFor cache, const SmoothResult& result) {
  const Smoothing& smoothing = result.smoothing;
  Json json = {{"for", name_of(cache)},
               {"k", smoothing.aligned.empty() ? json_of(smoothing.k, smoothing.k_reason)
                                               : json_of(smoothing.aligned, *result.gain)},
               {"v", json_of(smoothing.v, smoothing.v_reason)}};
  if (!result.gain) return json;
  json["layers_without_gain"] = result.gain->without;
  json["predicted_kl"] = {{"before", predicted_json(result.gain->before)},
                          {"after", predicted_json(result.gain->after)}};
  return json;
}

Json manifest_of(const SmoothRequest& request, const PlannedModel& subject, const Dataset& dataset,
                 const SmoothResult& result) {
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
          {"smoothing", smoothing_json(request.cache, result)},
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
  text << std::setprecision(3) << counted(turned, "pair") << " turned";
  if (scaled > 0) text << ", " << scaled << " scaled";
  if (shifted > 0) text << ", " << counted(shifted, "channel") << " without their mean";
  text << ", in " << counted(aligned.size(), "layer") << "; the squared error of K in them is "
       << after / before << " times what it was";
  return text.str();
}

/// "predicted KL 0.213 before, 0.008 now with scale 1.0; ..", empty where nothing is predicted.
std::string gain_text(const AlignmentGain& gain) {
  std::string text;
  const auto add = [&](const char* scales, std::optional<CacheDamage> CacheAttention::*which) {
    const auto &was = gain.before.*which, &is = gain.after.*which;
    if (!was || !is) return;
    text += (text.empty() ? "predicted KL with " : ", with ") + std::string(scales) + " " +
            fixed("%.4f", was->kl_mean) + " before, " + fixed("%.4f", is->kl_mean) + " now";
  };
  add("scale 1.0", &CacheAttention::unit);
  add("calibrated scales", &CacheAttention::calibrated);
  return text;
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
                                      counted(written.rounded, "tensor") + " to 16 bits";
  return written.largest_error == 0.0 ? "the same, bit for bit"
                                      : "the same, but for rounding of norms";
}

/// Runs one request that names its data set.
class Smoother {
 public:
  Smoother(const SmoothRequest& request, Diagnostics& diagnostics)
      : request_(request),
        diagnostics_(diagnostics),
        subject_(subject_of(request.model, diagnostics)),
        pool_(request.device.threads) {}

  SmoothResult run() {
    check();
    const auto dataset = open_dataset(request_.dataset, {.records = request_.records});
    samples_ = samples_for(subject_, *dataset, request_.records, request_.samples, diagnostics_);
    AtomicDirectory output(request_.output, request_.overwrite);
    scratch_ = output.target().parent_path();
    backends_ = open_backends(request_.device, diagnostics_);
    result_.num_samples = std::ssize(samples_);
    result_.num_tokens = tokens_of(samples_);
    result_.smoothing = observed_smoothing();
    write(output.path());
    if (!result_.smoothing.aligned.empty()) keep_gains(output.path());
    result_.manifest = manifest_of(request_, subject_, *dataset, result_);
    write_text_file(output.path() / kManifestName, dump_json(result_.manifest));
    write_card(output.path(), "", subject_.model_dir, result_.manifest, {});
    output.commit();
    return std::move(result_);
  }

 private:
  PlannedModel subject_of(const std::string& model, Diagnostics& diagnostics) const {
    const std::string recipe(kDefaultRecipe);
    return make_subject(read_recipe(recipe), recipe, model, diagnostics, request_.family);
  }

  void check() const {
    check_can_be_rewritten(subject_.model_dir);
    check_described(subject_.model_dir, subject_.config, subject_.quantization);
    in_context(request_.model, [&] {
      if (request_.cache == SmoothedFor::kInt8)
        check_can_be_smoothed(subject_.config);
      else
        check_can_be_aligned(subject_.config);
    });
    check_target(subject_.model_dir, request_.output);
    check_keeps_inputs(request_.output, {request_.model, request_.dataset, request_.family.file()});
  }

  void write(const fs::path& folder) {
    result_.written = write_rewritten_checkpoint(subject_.model_dir, subject_.config,
                                                 result_.smoothing.factors, pool_, folder);
  }

  LayerwiseOptions layerwise(const ModelConfig& config) const {
    return {.compute_type = compute_type_of(request_.device, *backends_[0], config),
            .scratch_folder = scratch_};
  }

  /// One pass over the samples. see gets each layer that has a cache of its own.
  void observe_channels(
      const std::function<void(int64_t layer, const LayerObservation& seen)>& see) {
    const ModelConfig& config = subject_.config;
    const Weights weights(subject_.model_dir, config, &subject_.quantization);
    std::vector<std::span<const TokenId>> ids;
    for (const Sample& sample : samples_) ids.emplace_back(sample.ids);
    const auto count = std::max<int64_t>(1, std::ssize(samples_));
    ObservationRequest observation{.channels = true};
    if (request_.cache == SmoothedFor::kFp8E4m3)
      observation.key_rows = std::min(kMostKeyRowsOfSample, (kKeyRows + count - 1) / count);
    LayerwiseOptions options = layerwise(config);
    options.observation = observation;
    options.longest_sample = longest_of(samples_);
    options.embedded = embedded_of(samples_);
    if (backends_[0]->is_host()) set_process_memory(options, config, request_.device.threads);
    DividedForward forward(config, weights, borrowed(backends_), ids, options, diagnostics_);
    forward.request(observation);
    AttentionReader reader(config, samples_);
    for (int64_t layer = 0; layer <= observation.last_layer(config); ++layer) {
      const LayerObservation seen = run_exact(forward, config, observation, layer);
      if (config.has_attention(layer)) reader.statistics(layer, &seen);  // refuses NaN
      if (seen.channels) see(layer, seen);
    }
  }

  Smoothing observed_smoothing() {
    const auto layers = static_cast<size_t>(subject_.config.num_hidden_layers);
    if (request_.cache == SmoothedFor::kInt8) {
      std::vector<ChannelAmax> all(layers);
      observe_channels([&](int64_t layer, const LayerObservation& seen) {
        all[static_cast<size_t>(layer)] = *seen.channels;
      });
      return smoothing_of(subject_.config, all);
    }
    Smoothing smoothing{.factors = KvFactors(layers),
                        .v_reason = "an FP8 cache keeps the bits of every magnitude"};
    observe_channels([&](int64_t layer, const LayerObservation& seen) {
      LayerAlignment made = align_layer(subject_.config, layer, seen.key_rows, *seen.channels);
      if (made.changed() == 0) return;
      smoothing.factors[static_cast<size_t>(layer)] = made.factors;
      smoothing.aligned.emplace(layer, std::move(made));
    });
    if (smoothing.aligned.empty())
      smoothing.k_reason = "no constant part of it is large against what varies";
    return smoothing;
  }

  /// Runs the compared samples, the first ones as in a calibration, with an unquantized cache.
  CacheAttention compared(const PlannedModel& subject) {
    const int64_t count = compared_samples(lengths_of(samples_));
    const Calibration found = calibrate_samples(
        subject,
        {.backends = borrowed(backends_),
         .samples = std::span(samples_).first(static_cast<size_t>(count)),
         .layerwise = layerwise(subject.config),
         .threads = request_.device.threads},
        {.kv_forward = KvForward::kExact, .compared_samples = count}, nullptr, diagnostics_);
    CacheAttention attention{
        .calibrated = predicted_damage(found, subject.config, &AttentionDamage::calibrated),
        .unit = predicted_damage(found, subject.config, &AttentionDamage::unit)};
    for (const AttentionCalibration& layer : found.layers)
      if (layer.damage) attention.layers.emplace(layer.layer, *layer.damage);
    return attention;
  }

  CacheAttention compared(const fs::path& folder) {
    SilentDiagnostics silent;  // of what was said of the model already
    return compared(subject_of(folder.string(), silent));
  }

  /// Takes back what gains nothing. Layers are compared with exact K and V before them, so none
  /// depends on the others.
  void keep_gains(const fs::path& folder) {
    Smoothing& smoothing = result_.smoothing;
    AlignmentGain gain{.before = compared(subject_), .after = compared(folder)};
    std::vector<int64_t> layers;
    for (const auto& [layer, made] : smoothing.aligned) layers.push_back(layer);
    gain.without = layers_without_gain(layers, gain.before, gain.after);
    if (!gain.without.empty()) {
      for (const int64_t layer : gain.without) {
        smoothing.aligned.erase(layer);
        smoothing.factors[static_cast<size_t>(layer)] = {};
      }
      for (const fs::path& written : paths_in(folder)) remove_tree(written);
      write(folder);
      gain.after = compared(folder);
    }
    if (smoothing.aligned.empty())
      smoothing.k_reason = "attention over an FP8 cache gains nothing by another";
    result_.gain = std::move(gain);
  }

  const SmoothRequest& request_;
  Diagnostics& diagnostics_;
  PlannedModel subject_;
  ThreadPool pool_;
  std::vector<std::unique_ptr<Backend>> backends_ = {};
  std::vector<Sample> samples_ = {};
  fs::path scratch_ = {};  ///< folder for hidden states
  SmoothResult result_ = {};
};

constexpr const char* kSmoothedBesideOutput = ".kvcal-smoothed";

std::string lines_of(const SmoothResult& result) {
  std::string text = "rewritten for an fp8_e4m3 cache:";
  for (const auto& [label, line] : smoothing_lines(result)) text += "\n  " + label + ": " + line;
  return text;
}

}  // namespace

SmoothResult smooth_checkpoint(const SmoothRequest& request, Diagnostics& diagnostics) {
  SmoothRequest settled = request;
  if (settled.dataset.empty()) settled.dataset = kDefaultDataset;
  return Smoother(settled, diagnostics).run();
}

LabelledLines smoothing_lines(const SmoothResult& result) {
  const RewrittenCheckpoint& written = result.written;
  std::string changed = counted(written.changed, "tensor");
  if (written.widened > 0)
    changed += ", of which " + std::to_string(written.widened) +
               " are float32 now: their dtype does not hold the values";
  LabelledLines lines{
      {"samples", std::to_string(result.num_samples) + ", " + counted(result.num_tokens, "token")},
      {"K", result.smoothing.aligned.empty()
                ? side_text(result.smoothing.k, result.smoothing.k_reason)
                : aligned_text(result.smoothing.aligned)},
      {"V", side_text(result.smoothing.v, result.smoothing.v_reason)},
      {"changed", changed},
      {"function", function_text(written, result.smoothing)}};
  if (!result.gain) return lines;
  if (const std::string text = gain_text(*result.gain); !text.empty())
    lines.emplace_back("FP8 cache", text);
  if (const auto& without = result.gain->without; !without.empty())
    lines.emplace_back("left alone", layer_range_text(without) + ", where attention gains nothing");
  return lines;
}

SmoothRequest smooth_request(const CalibrateRequest& request) {
  SmoothRequest smooth;
  smooth.model = request.model;
  smooth.cache = SmoothedFor::kFp8E4m3;
  smooth.dataset = request.dataset;
  smooth.records = request.records;
  SampleOptions samples = request.samples;
  samples.num_calibration_samples =
      std::min(samples.num_calibration_samples, smooth.samples.num_calibration_samples);
  samples.max_seq_length = std::min(samples.max_seq_length, smooth.samples.max_seq_length);
  smooth.samples = samples;
  smooth.family = request.family;
  smooth.device = request.device;
  smooth.version = request.version;
  return smooth;
}

SmoothedModel::SmoothedModel(const CalibrateRequest& request, const RankSession& session,
                             Diagnostics& diagnostics)
    : request_(request) {
  if (!session.is_alone())
    fail_usage("--smooth runs in one process: kvcal smooth ", request.model,
               " --for fp8_e4m3 first, and calibrate its output on several ranks");
  CalibrateRequest settled = request;
  PlannedRun plan;
  SilentDiagnostics silent;  // the calibration says it all again
  plan_run(settled, plan, silent);
  if (!runs_text(settled, *plan.subject))
    fail("--smooth needs text to see K, and ", request.recipe, " calibrates nothing");
  check_replaceable(request.output.output, OutputKind::kFolder, request.output.overwrite);
  scratch_.emplace(request.output.output + kSmoothedBesideOutput, true);
  SmoothRequest smooth = smooth_request(settled);
  smooth.output = (scratch_->path() / "model").string();
  diagnostics.inform("looking for constant parts of K");
  const SmoothResult result = smooth_checkpoint(smooth, diagnostics);
  diagnostics.inform(lines_of(result));
  if (!result.is_changed()) return;
  // The constant parts decide the largest K, and a scale from it serves them alone.
  if (request_.recipe == kDefaultRecipe) request_.recipe = kAttentionRecipe;
  const Json& model = result.manifest.at("model");
  request_.source = {.path = model.at("path").get<std::string>(),
                     .sha256 = model.at("sha256").get<std::string>()};
  request_.model = smooth.output;
}

WeightsKl weights_kl(const AttentionDamage& damage) {
  return {.calibrated = sum_of(damage.calibrated).mean_kl(), .unit = sum_of(damage.unit).mean_kl()};
}

std::vector<int64_t> layers_without_gain(std::span<const int64_t> layers,
                                         const CacheAttention& before,
                                         const CacheAttention& after) {
  std::vector<int64_t> found;
  for (const int64_t layer : layers) {
    const auto was = before.layers.find(layer), is = after.layers.find(layer);
    if (was == before.layers.end() || is == after.layers.end()) continue;
    if (weights_kl(is->second).sum() >= weights_kl(was->second).sum()) found.push_back(layer);
  }
  return found;
}

Json to_json(const WeightsKl& kl) {
  return {{"calibrated", kl.calibrated}, {"unit", kl.unit}};
}

}  // namespace kvcal
