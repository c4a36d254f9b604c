#include "calib/calibrator.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "calib/compared_scales.h"
#include "calib/exact_pass.h"
#include "calib/observed_statistics.h"
#include "calib/resolve_plan.h"
#include "quant/observer.h"

namespace kvcal {
namespace {

bool may_clip(const PlannedAttention& planned) {
  return !planned.ignored && make_observer(planned.kv)->may_clip();
}

bool is_quantized(const PlannedAttention& planned, const CalibrationOptions& options) {
  return options.kv_forward == KvForward::kQuantized && !planned.ignored;
}

class Calibrator {
 public:
  Calibrator(LayerForward& forward, const ModelConfig& config, const QuantPlan& plan,
             std::span<const Sample> samples, const CalibrationOptions& options,
             Diagnostics& diagnostics)
      : forward_(forward),
        config_(config),
        plan_(plan),
        samples_(samples),
        options_(options),
        diagnostics_(diagnostics),
        names_(config),
        reader_(config, samples),
        calibration_(
            empty_calibration(plan, config, options.derive.kv_dtype, options.derive.headroom)),
        pass_(forward, config, observation_of(plan, options)) {}

  /// kept: receives the statistics, or null.
  Calibration run(Statistics* kept) {
    kept_ = kept;
    if (kept) *kept = {.origin = std::move(kept->origin), .attention = {}, .inputs = {}};
    // Layers behind the last that runs read K and V of one that ran.
    for (int64_t layer = 0; layer < config_.num_layers(); ++layer) {
      run_layer(layer);
      if (layer <= pass_.last_layer()) derive_layer_inputs(layer);
    }
    if (observation_of(plan_, options_).head) {
      keep_inputs(-1, {forward_.observe_head()});
      derive_layer_inputs(-1);
    }
    return std::move(calibration_);
  }

 private:
  void run_layer(int64_t layer) {
    const auto planned = std::ranges::find(plan_.attention, layer, &PlannedAttention::layer);
    if (planned != plan_.attention.end()) {
      if (config_.has_own_cache(layer)) return calibrate_attention(*planned);
      return calibrate_reader(*planned);
    }
    std::optional<LayerObservation> seen;
    if (layer <= pass_.last_layer()) {
      seen = pass_.run(layer);
      keep_inputs(layer, seen->linears);
    }
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
    LayerObservation seen =
        in_one_pass ? pass_.run(planned.layer) : forward_.observe(planned.layer);
    keep_inputs(planned.layer, seen.linears);
    AttentionStatistics statistics = reader_.statistics(planned.layer, &seen);
    AttentionCalibration layer =
        derive_attention(statistics, planned, config_, options_.derive, diagnostics_);
    choose_scales(planned, layer);
    if (!in_one_pass) {
      const SaturationCounts saturated = move_on(layer, quantizes, clips);
      // Without clipping, only the rounding of amax / scale could exceed the largest code.
      if (clips) {
        layer.k.num_saturated = saturated.k;
        layer.v.num_saturated = saturated.v;
        // Queries are quantized where the layer runs with scales.
        if (layer.q && quantizes && !pass_.is_end(layer.layer))
          layer.q->num_saturated = saturated.q;
      }
    }
    compare_attention(layer);
    statistics.compared = compared_scales(layer);
    calibration_.layers.push_back(std::move(layer));
    if (kept_) kept_->attention.push_back(std::move(statistics));
  }

  void choose_scales(const PlannedAttention& planned, AttentionCalibration& layer) {
    if (!judges_attention(planned)) return;
    if (observation_of(plan_, options_).compares(layer.layer, config_))
      return choose_by_attention(forward_, config_, planned, options_, layer);
    diagnostics_.note("attention of " + layer.module +
                      " is not compared, so the largest values seen make its scales");
  }

  void compare_attention(AttentionCalibration& layer) {
    if (layer.ignored || !observation_of(plan_, options_).compares(layer.layer, config_)) return;
    layer.damage = damage_of(forward_, config_, layer, options_);
  }

  /// A layer that reads another one's K and V has its statistics, scales and counts; only its
  /// queries are its own.
  void calibrate_reader(const PlannedAttention& planned) {
    const bool runs = planned.layer <= pass_.last_layer();
    const bool quantizes = is_quantized(planned, options_);
    std::optional<LayerObservation> seen;
    if (runs && !quantizes) {
      seen = pass_.run(planned.layer);
      keep_inputs(planned.layer, seen->linears);
    } else if (runs && observation_of(plan_, options_).query) {
      seen = forward_.observe(planned.layer);
    }
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
    if (runs && quantizes && !pass_.is_end(planned.layer)) {
      LayerAdvance advance =
          forward_.advance(planned.layer, quantization_of(layer, config_, options_));
      keep_inputs(planned.layer, advance.linears);
      if (layer.q) layer.q->num_saturated = advance.saturated.q;
    }
    calibration_.layers.push_back(std::move(layer));
    if (kept_) kept_->attention.push_back(std::move(statistics));
  }

  SaturationCounts move_on(const AttentionCalibration& layer, bool quantizes, bool clips) {
    const KvQuantization quantization = quantization_of(layer, config_, options_);
    if (quantizes && !pass_.is_end(layer.layer)) {
      LayerAdvance advance = forward_.advance(layer.layer, quantization);
      keep_inputs(layer.layer, advance.linears);
      return advance.saturated;
    }
    const SaturationCounts saturated =
        clips ? forward_.count_saturated(layer.layer, quantization) : SaturationCounts{};
    if (!pass_.is_end(layer.layer))
      keep_inputs(layer.layer, forward_.advance_exact(layer.layer).linears);
    return saturated;
  }

  /// Stores the inputs that the pass that ends a layer reports, once per layer.
  void keep_inputs(int64_t layer, const std::vector<LinearObservation>& linears) {
    std::ranges::move(input_statistics(names_, layer, linears, samples_),
                      std::back_inserter(inputs_));
  }

  LayerForward& forward_;
  const ModelConfig& config_;
  const QuantPlan& plan_;
  std::span<const Sample> samples_;
  const CalibrationOptions& options_;
  Diagnostics& diagnostics_;
  InputNames names_;
  AttentionReader reader_;
  Calibration calibration_;
  ExactPass pass_;
  std::vector<InputStatistics> inputs_;  ///< of the layer that runs
  Statistics* kept_ = nullptr;           ///< of all layers; null: not kept
};

}  // namespace

ObservationRequest observation_of(const QuantPlan& plan, const CalibrationOptions& options) {
  const bool inputs = options.observes_all || has_static_inputs(plan);
  const bool queries =
      options.observes_all ||
      std::ranges::any_of(plan.attention, [](const auto& one) { return one.q.has_value(); });
  return {.query = queries,
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
  return Calibrator(forward, config, plan, samples, options, diagnostics).run(kept);
}

}  // namespace kvcal
