#include "calib/calibrator.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "calib/observer.h"
#include "calib/quant_plan.h"
#include "calib/statistics.h"

namespace kvcal {
namespace {

std::vector<float> scale_of_each_head(const std::vector<Scale>& scales, int64_t heads) {
  std::vector<float> result;
  for (int64_t head = 0; head < heads; ++head)
    result.push_back(scales[scales.size() == 1 ? 0 : static_cast<size_t>(head)].value);
  return result;
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
        calibration_(empty_calibration(plan, config, options.derive.kv_dtype)),
        needs_inputs_(observation_of(plan, options).head) {}

  Calibration run(Statistics* kept) {
    forward_.request(observation_of(plan_, options_));
    const int64_t last =
        needs_inputs_ ? config_.num_hidden_layers - 1 : config_.last_attention_layer();
    for (int64_t layer = 0; layer <= last; ++layer) {
      run_layer(layer);
      derive_layer_inputs(layer);
    }
    if (needs_inputs_) {
      keep_inputs(-1, {forward_.observe_head()});
      derive_layer_inputs(-1);
    }
    if (kept) {
      kept->attention = std::move(statistics_.attention);
      kept->inputs = std::move(statistics_.inputs);
    }
    return std::move(calibration_);
  }

 private:
  void run_layer(int64_t layer) {
    if (!config_.has_attention(layer)) {
      keep_inputs(layer, forward_.advance_without_attention(layer).linears);
      return;
    }
    const auto planned = std::ranges::find(plan_.attention, layer, &PlannedAttention::layer);
    if (planned == plan_.attention.end()) {
      const LayerObservation seen = observe_and_advance(layer);
      keep_inputs(layer, seen.linears);
      if (options_.keeps_statistics)
        statistics_.attention.push_back(
            statistics_of(seen, config_.attention_module(layer), layer));
    } else {
      calibrate_attention(*planned);
    }
  }

  /// A layer's inputs are known when it is done; an expert that saw nothing stops the run there.
  void derive_layer_inputs(int64_t layer) {
    std::ranges::move(
        derive_inputs(by_name(inputs_), plan_, layer, names_, options_.derive, diagnostics_),
        std::back_inserter(calibration_.linears));
    if (options_.keeps_statistics)
      std::ranges::move(inputs_, std::back_inserter(statistics_.inputs));
    inputs_.clear();
  }

  /// A layer whose K and V are seen and go on as they are.
  LayerObservation observe_and_advance(int64_t layer) {
    if (is_end(layer)) return forward_.observe(layer);
    return forward_.observe_and_advance_exact(layer);
  }

  /// In quantized mode a layer's scales come from all samples before its attention reads K and V
  /// with them. In exact mode one pass does where nothing can clip; else the clipped values are
  /// counted before the layer moves on.
  void calibrate_attention(const PlannedAttention& planned) {
    const bool may_clip = !planned.ignored && make_observer(planned.kv)->may_clip();
    const bool is_quantized = options_.kv_forward == KvForward::kQuantized && !planned.ignored;
    const bool in_one_pass = !is_quantized && !may_clip;
    LayerObservation seen =
        in_one_pass ? observe_and_advance(planned.layer) : forward_.observe(planned.layer);
    keep_inputs(planned.layer, seen.linears);
    AttentionStatistics statistics = statistics_of(seen, planned.module, planned.layer);
    AttentionCalibration layer = derive_attention(statistics, planned, config_, options_.derive);
    if (!in_one_pass) {
      const SaturationCounts saturated = move_on(layer, is_quantized, may_clip);
      // Without clipping a count could only come from the rounding of amax / scale just over the
      // largest code.
      if (may_clip) {
        layer.k.num_saturated = saturated.k;
        layer.v.num_saturated = saturated.v;
        // Queries are quantized where the layer runs with scales.
        if (layer.q && is_quantized && !is_end(layer.layer)) layer.q->num_saturated = saturated.q;
      }
    }
    warn_of_zeros(layer);
    calibration_.layers.push_back(std::move(layer));
    if (options_.keeps_statistics) statistics_.attention.push_back(std::move(statistics));
  }

  SaturationCounts move_on(const AttentionCalibration& layer, bool is_quantized, bool may_clip) {
    const KvQuantization quantization = quantization_of(layer);
    if (is_quantized && !is_end(layer.layer)) {
      LayerAdvance advance = forward_.advance(layer.layer, quantization);
      keep_inputs(layer.layer, advance.linears);
      return advance.saturated;
    }
    const SaturationCounts saturated =
        may_clip ? forward_.count_saturated(layer.layer, quantization) : SaturationCounts{};
    if (!is_end(layer.layer)) keep_inputs(layer.layer, forward_.advance_exact(layer.layer).linears);
    return saturated;
  }

  /// Whether nothing behind this layer's K and V is needed.
  bool is_end(int64_t layer) const {
    return !needs_inputs_ && layer == config_.last_attention_layer();
  }

  KvQuantization quantization_of(const AttentionCalibration& layer) const {
    KvQuantization quantization{
        .dtype = options_.derive.kv_dtype,
        .k_scales = scale_of_each_head(layer.k.scales, config_.cache_heads()),
        .v_scales = scale_of_each_head(layer.v.scales, config_.cache_heads())};
    if (layer.q)
      quantization.q_scales = scale_of_each_head(layer.q->scales, config_.num_attention_heads);
    return quantization;
  }

  AttentionStatistics statistics_of(const LayerObservation& seen, const std::string& module,
                                    int64_t layer) const {
    AttentionStatistics statistics{.module = module,
                                   .k = head_statistics("K", seen.k, layer, samples_),
                                   .v = head_statistics("V", seen.v, layer, samples_)};
    if (seen.q) statistics.q = head_statistics("Q", *seen.q, layer, samples_);
    return statistics;
  }

  /// Each pass that ends a layer shows its inputs, once a layer.
  void keep_inputs(int64_t layer, const std::vector<LinearObservation>& linears) {
    if (!needs_inputs_) return;
    for (const LinearObservation& linear : linears)
      inputs_.push_back(
          input_statistics(names_.of(layer, linear.role, linear.index), linear, samples_));
  }

  void warn_of_zeros(const AttentionCalibration& layer) {
    for (const auto& [name, side] : {std::pair{"K", &layer.k}, std::pair{"V", &layer.v}})
      if (side->statistics.range().amax().value == 0.0f)
        diagnostics_.warn(std::string(name) + " of " + layer.module +
                          " is zero everywhere; its scale is float32's epsilon");
  }

  LayerForward& forward_;
  const ModelConfig& config_;
  const QuantPlan& plan_;
  std::span<const Sample> samples_;
  const CalibrationOptions& options_;
  Diagnostics& diagnostics_;
  InputNames names_;
  Calibration calibration_;
  Statistics statistics_;                ///< of all layers, where they are kept
  std::vector<InputStatistics> inputs_;  ///< of the layer that runs
  bool needs_inputs_;
};

}  // namespace

ObservationRequest observation_of(const QuantPlan& plan, const CalibrationOptions& options) {
  const bool inputs = options.keeps_statistics || has_static_inputs(plan);
  const bool queries =
      options.keeps_statistics ||
      std::ranges::any_of(plan.attention, [](const auto& one) { return one.q.has_value(); });
  return {.query = queries,
          .head = inputs,
          .all_experts = options.derive.all_experts,
          .linears = inputs ? LinearDetail::kSamples : LinearDetail::kNone};
}

Calibration calibrate(LayerForward& forward, const ModelConfig& config, const QuantPlan& plan,
                      std::span<const Sample> samples, const CalibrationOptions& options,
                      Statistics* kept, Diagnostics& diagnostics) {
  return Calibrator(forward, config, plan, samples, options, diagnostics).run(kept);
}

}  // namespace kvcal
