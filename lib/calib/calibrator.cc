#include "calib/calibrator.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "calib/plan/resolve_plan.h"
#include "calib/statistics/observed_statistics.h"
#include "family/architecture.h"
#include "quant/observer.h"

namespace kvcal {
namespace {

bool may_clip(const PlannedAttention& planned) {
  return !planned.ignored && make_observer(planned.kv)->may_clip();
}

/// Whether the scales of the module are chosen by what they do to attention.
bool judges_attention(const PlannedAttention& planned) {
  return !planned.ignored && make_observer(planned.kv)->judges_attention();
}

bool is_quantized(const PlannedAttention& planned, const CalibrationOptions& options) {
  return options.kv_forward == KvForward::kQuantized && !planned.ignored;
}

/// One scale for each head, from one or as many; those of channels as they are.
std::vector<float> scale_of_each_head(const std::vector<Scale>& scales, int64_t heads) {
  if (scales.size() == 1)
    return std::vector<float>(static_cast<size_t>(heads), scales.front().value);
  std::vector<float> result;
  for (const Scale& scale : scales) result.push_back(scale.value);
  return result;
}

/// Cache of a layer with the scales made: one for each head or channel.
KvQuantization quantization_of(const AttentionCalibration& layer, const ModelConfig& config,
                               const KvFormat& format) {
  const int64_t heads = config.cache(layer.layer).heads;
  KvQuantization quantization{.type = cache_type_of(format),
                              .k_scales = scale_of_each_head(layer.k.scales, heads),
                              .v_scales = scale_of_each_head(layer.v.scales, heads)};
  if (layer.q)
    quantization.q_scales =
        scale_of_each_head(layer.q->scales, config.attention(layer.layer).heads);
  return quantization;
}

/// [candidates]: errors of the heads of Q that read a group, the heads of K with one scale.
std::vector<AttentionError> errors_of_group(const std::vector<std::vector<AttentionError>>& tried,
                                            size_t group, size_t groups) {
  std::vector<AttentionError> errors;
  for (const std::vector<AttentionError>& heads : tried) {
    const size_t count = heads.size() / groups;
    errors.push_back(sum_of(std::span(heads).subspan(group * count, count)));
  }
  return errors;
}

/// Replaces the scales of K, and those of V where a latent cache ties them, by what the observer
/// finds best in attention. Call after a pass that observed the layer, with compares_first.
void choose_by_attention(LayerForward& forward, const ModelConfig& config,
                         const PlannedAttention& planned, const CalibrationOptions& options,
                         AttentionCalibration& layer) {
  const auto observer = make_observer(planned.kv);
  const bool is_tied = config.architecture->has_latent_attention && options.derive.ties_latent;
  const KvFormat format = kv_format_of(planned.kv, options.derive.kv_dtype);
  // Groups do not read each other's K, so one comparison tries a candidate of each.
  std::vector<std::vector<Scale>> scales{layer.k.scales};  // [1 + candidates][groups]
  const size_t groups = layer.k.scales.size();
  for (size_t group = 0; group < groups; ++group) {
    const std::vector<Scale> own = observer->candidates(layer.k.scales[group]);
    scales.resize(1 + own.size(), std::vector<Scale>(groups));
    for (size_t i = 0; i < own.size(); ++i) scales[1 + i][group] = own[i];
  }
  std::vector<KvQuantization> candidates;
  const int64_t heads = config.cache(layer.layer).heads;
  for (const std::vector<Scale>& tried : scales) {
    KvQuantization& candidate = candidates.emplace_back(quantization_of(layer, config, format));
    candidate.k_scales = scale_of_each_head(tried, heads);
    if (is_tied) candidate.v_scales = candidate.k_scales;
  }
  const AttentionComparison found = forward.compare_attention(layer.layer, candidates);
  std::vector<std::vector<AttentionError>> errors;
  for (size_t i = 0; i < candidates.size(); ++i) errors.push_back(found.of(i));
  for (size_t group = 0; group < groups; ++group)
    layer.k.scales[group] = scales[observer->best(errors_of_group(errors, group, groups))][group];
  if (is_tied) layer.v.scales = layer.k.scales;
}

class Calibrator {
 public:
  Calibrator(LayerForward& forward, const ModelConfig& config, const QuantPlan& plan,
             std::span<const Sample> samples, const CalibrationOptions& options, Statistics* kept,
             Diagnostics& diagnostics)
      : forward_(forward),
        config_(config),
        plan_(plan),
        samples_(samples),
        options_(options),
        request_(observation_of(plan, options)),
        kept_(kept),
        diagnostics_(diagnostics),
        names_(config),
        reader_(config, samples),
        calibration_(
            empty_calibration(plan, config, options.derive.kv_dtype, options.derive.headroom)) {}

  Calibration run() {
    forward_.request(request_);
    if (kept_) *kept_ = {.origin = std::move(kept_->origin), .attention = {}, .inputs = {}};
    // Layers behind the last that runs read K and V of one that ran.
    for (int64_t layer = 0; layer < config_.num_layers(); ++layer) {
      run_layer(layer);
      if (runs(layer)) derive_layer_inputs(layer);
    }
    if (request_.head) {
      keep_inputs(-1, {forward_.observe_head()});
      derive_layer_inputs(-1);
    }
    return std::move(calibration_);
  }

 private:
  bool runs(int64_t layer) const { return layer <= request_.last_layer(config_); }

  LayerObservation run_exactly(int64_t layer) {
    LayerObservation seen = run_exact(forward_, config_, request_, layer);
    keep_inputs(layer, seen.linears);
    return seen;
  }

  void run_layer(int64_t layer) {
    const auto planned = std::ranges::find(plan_.attention, layer, &PlannedAttention::layer);
    if (planned != plan_.attention.end()) {
      if (config_.has_own_cache(layer)) return calibrate_attention(*planned);
      return calibrate_reader(*planned);
    }
    std::optional<LayerObservation> seen;
    if (runs(layer)) seen = run_exactly(layer);
    if (kept_ && config_.has_attention(layer))
      kept_->attention.push_back(reader_.statistics(layer, seen ? &*seen : nullptr));
  }

  /// Derives the scales of a layer's inputs at its end; an expert without tokens stops the run
  /// there.
  void derive_layer_inputs(int64_t layer) {
    std::ranges::move(
        derive_inputs(by_name(inputs_), plan_, layer, names_, options_.derive, diagnostics_),
        std::back_inserter(calibration_.linears));
    if (kept_) std::ranges::move(inputs_, std::back_inserter(kept_->inputs));
    inputs_.clear();
  }

  /// In quantized mode a layer's scales come from all samples before its attention reads quantized
  /// K and V. In exact mode one pass suffices where nothing can clip; otherwise the clipped values
  /// are counted before the layer advances.
  void calibrate_attention(const PlannedAttention& planned) {
    const bool clips = may_clip(planned);
    const bool quantizes = is_quantized(planned, options_);
    const bool in_one_pass = !quantizes && !clips;
    const LayerObservation seen = in_one_pass
                                      ? run_exact(forward_, config_, request_, planned.layer)
                                      : forward_.observe(planned.layer);
    keep_inputs(planned.layer, seen.linears);
    AttentionStatistics statistics = reader_.statistics(planned.layer, &seen);
    AttentionCalibration layer =
        derive_attention(statistics, planned, config_, options_.derive, diagnostics_);
    const bool is_compared = request_.compares(layer.layer, config_);
    if (judges_attention(planned) && is_compared)
      choose_by_attention(forward_, config_, planned, options_, layer);
    else if (judges_attention(planned))
      diagnostics_.note("attention of " + layer.module +
                        " is not compared, so the largest values seen make its scales");
    if (!in_one_pass) {
      const SaturationCounts saturated = move_on(layer, quantizes, clips);
      // Without clipping, only the rounding of amax / scale could exceed the largest code.
      if (clips) {
        layer.k.num_saturated = saturated.k;
        layer.v.num_saturated = saturated.v;
        // Queries are quantized where the layer runs with scales.
        if (layer.q && quantizes && !request_.ends_with(layer.layer, config_))
          layer.q->num_saturated = saturated.q;
      }
    }
    if (!layer.ignored && is_compared)
      layer.damage = damage_of(forward_, config_, layer, calibration_.kv_format);
    statistics.compared = compared_scales(layer);
    keep(std::move(layer), std::move(statistics));
  }

  /// A layer that reads another one's K and V has its statistics, scales and counts; only its
  /// queries are its own.
  void calibrate_reader(const PlannedAttention& planned) {
    const bool quantizes = is_quantized(planned, options_);
    std::optional<LayerObservation> seen;
    if (runs(planned.layer) && !quantizes)
      seen = run_exactly(planned.layer);
    else if (runs(planned.layer) && request_.query)
      seen = forward_.observe(planned.layer);
    AttentionStatistics statistics = reader_.statistics(planned.layer, seen ? &*seen : nullptr);
    AttentionCalibration layer =
        derive_attention(statistics, planned, config_, options_.derive, diagnostics_);
    const auto source =
        std::ranges::find(calibration_.layers, config_.layer(planned.layer).cache_layer,
                          &AttentionCalibration::layer);
    KVCAL_CHECK(source != calibration_.layers.end());
    if (judges_attention(planned)) {
      layer.k.scales = source->k.scales;
      layer.v.scales = source->v.scales;
    }
    layer.k.num_saturated = source->k.num_saturated;
    layer.v.num_saturated = source->v.num_saturated;
    if (runs(planned.layer) && quantizes && !request_.ends_with(planned.layer, config_)) {
      const SaturationCounts saturated = move_on(layer, true, false);
      if (layer.q) layer.q->num_saturated = saturated.q;
    }
    keep(std::move(layer), std::move(statistics));
  }

  /// Runs the rest of the layer, if any is needed; counts what clips where it is quantized, or
  /// where counts is set.
  SaturationCounts move_on(const AttentionCalibration& layer, bool quantizes, bool counts) {
    const bool is_end = request_.ends_with(layer.layer, config_);
    const KvQuantization quantization = quantization_of(layer, config_, calibration_.kv_format);
    LayerAdvance advance;
    if (counts && (is_end || !quantizes))
      advance.saturated = forward_.count_saturated(layer.layer, quantization);
    if (is_end) return advance.saturated;
    if (quantizes)
      advance = forward_.advance(layer.layer, quantization);
    else
      advance.linears = forward_.advance_exact(layer.layer).linears;
    keep_inputs(layer.layer, advance.linears);
    return advance.saturated;
  }

  /// Stores the inputs that the pass that ends a layer reports, once per layer.
  void keep_inputs(int64_t layer, const std::vector<LinearObservation>& linears) {
    std::ranges::move(input_statistics(names_, layer, linears, samples_),
                      std::back_inserter(inputs_));
  }

  void keep(AttentionCalibration layer, AttentionStatistics statistics) {
    calibration_.layers.push_back(std::move(layer));
    if (kept_) kept_->attention.push_back(std::move(statistics));
  }

  LayerForward& forward_;
  const ModelConfig& config_;
  const QuantPlan& plan_;
  std::span<const Sample> samples_;
  const CalibrationOptions& options_;
  const ObservationRequest request_;
  Statistics* kept_;  ///< of all layers; null: not kept
  Diagnostics& diagnostics_;
  InputNames names_;
  AttentionReader reader_;
  Calibration calibration_;
  std::vector<InputStatistics> inputs_;  ///< of the layer that runs
};

}  // namespace

ObservationRequest observation_of(const QuantPlan& plan, const CalibrationOptions& options) {
  const bool inputs = options.observes_all || has_static_inputs(plan);
  const bool queries =
      options.observes_all ||
      std::ranges::any_of(plan.attention, [](const auto& one) { return one.q.has_value(); });
  return {.query = queries,
          .channel_ranges = has_channel_scales(plan),
          .head = inputs,
          .all_experts = options.derive.all_experts,
          .linears = inputs ? LinearDetail::kSamples : LinearDetail::kNone,
          .compared_samples =
              options.compared_samples > 0 ? std::optional(options.compared_samples) : std::nullopt,
          .compares_first = std::ranges::any_of(plan.attention, judges_attention)};
}

bool needs_one_pass(const QuantPlan& plan, const CalibrationOptions& options) {
  return std::ranges::none_of(plan.attention, [&](const PlannedAttention& planned) {
    return is_quantized(planned, options) || may_clip(planned);
  });
}

Calibration calibrate(LayerForward& forward, const ModelConfig& config, const QuantPlan& plan,
                      std::span<const Sample> samples, const CalibrationOptions& options,
                      Statistics* kept, Diagnostics& diagnostics) {
  return Calibrator(forward, config, plan, samples, options, kept, diagnostics).run();
}

AttentionDamage damage_of(LayerForward& forward, const ModelConfig& config,
                          const AttentionCalibration& layer, const KvFormat& format) {
  const std::vector<float> ones(static_cast<size_t>(config.cache(layer.layer).heads), 1.0f);
  const KvQuantization candidates[] = {
      quantization_of(layer, config, format),
      {.type = cache_type_of(format), .k_scales = ones, .v_scales = ones}};
  const AttentionComparison found = forward.compare_attention(layer.layer, candidates);
  return {.calibrated = found.of(0), .unit = found.of(1)};
}

std::optional<ComparedScales> compared_scales(const AttentionCalibration& layer) {
  // The file has a row for each of K and V.
  if (!layer.damage || layer.k.scales.size() != layer.v.scales.size()) return std::nullopt;
  return ComparedScales{.damage = *layer.damage, .k = layer.k.scales, .v = layer.v.scales};
}

}  // namespace kvcal
