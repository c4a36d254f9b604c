#include "calib/calibrator.h"

#include <algorithm>
#include <string>

#include "calib/observer.h"
#include "model/modules.h"

namespace kvcal {
namespace {

void require_match(const std::string& pattern, std::string_view list,
                   const std::vector<ModuleName>& modules) {
  const auto matches = [&](const ModuleName& module) {
    return matches_target(pattern, module.name, module.class_name);
  };
  if (std::ranges::any_of(modules, matches)) return;
  std::vector<std::string> names;
  for (const ModuleName& module : modules) names.push_back(module.name);
  fail(list, " '", pattern, "' matches no module of the model", did_you_mean(pattern, names));
}

/// One side (K or V) of one layer: what was seen, in sample order, and what is made of it.
class SideCalibrator {
 public:
  SideCalibrator(std::string_view side, const ModelConfig& config, const QuantArgs& args)
      : side_(side),
        heads_(static_cast<size_t>(config.cache_heads())),
        per_head_(args.strategy == Strategy::kAttnHead),
        observer_(make_observer(args)) {}

  /// The extremes of each sample, [samples][groups]; kept in the statistics too.
  std::vector<std::vector<Range>> fold(const KvObservation& seen, std::span<const Sample> samples,
                                       int64_t layer) {
    statistics_.head_ranges.resize(heads_);
    statistics_.head_histograms = seen.histograms;
    for (const MagnitudeHistogram& histogram : seen.histograms)
      for (const uint64_t count : histogram.counts) statistics_.num_values += count;
    std::vector<std::vector<Range>> batches;
    for (size_t sample = 0; sample < samples.size(); ++sample) {
      std::vector<Range>& batch = batches.emplace_back(per_head_ ? heads_ : 1);
      for (size_t head = 0; head < heads_; ++head) {
        const ObservedRange& observed = seen.ranges[sample * heads_ + head];
        if (observed.first_nonfinite >= 0)
          fail_nonfinite(samples[sample], layer, head, observed.first_nonfinite);
        const Range range{observed.min, observed.max};
        statistics_.head_ranges[head].fold(range);
        batch[per_head_ ? head : 0].fold(range);
      }
    }
    return batches;
  }

  /// Shows the observer every sample in order.
  void observe(const std::vector<std::vector<Range>>& batches) {
    for (const std::vector<Range>& batch : batches) observer_->observe(batch);
  }

  KvTensorCalibration result(fp8::Format format) const {
    KvTensorCalibration calibration{.statistics = statistics_, .scales = {}, .num_saturated = 0};
    for (const Range& range : observer_->ranges())
      calibration.scales.push_back(scale_from(range.amax(), format));
    return calibration;
  }

 private:
  [[noreturn]] void fail_nonfinite(const Sample& sample, int64_t layer, size_t head,
                                   int32_t token) const {
    fail("NaN or Inf in ", side_, " of layer ", layer, ", head ", head, ", at token ", token,
         " of record ", sample.index, ": the weights or the compute dtype cannot carry this model");
  }

  std::string_view side_;
  size_t heads_;
  bool per_head_;
  std::unique_ptr<Observer> observer_;
  KvStatistics statistics_;
};

std::vector<float> scale_of_each_head(const std::vector<Scale>& scales, int64_t heads) {
  std::vector<float> result;
  for (int64_t head = 0; head < heads; ++head)
    result.push_back(scales[scales.size() == 1 ? 0 : static_cast<size_t>(head)].value);
  return result;
}

/// Engines keep the latent and the rotated key in one cache with k_scale alone (vLLM
/// `concat_and_cache_mla`), so one scale must carry both.
void share_ranges(std::vector<std::vector<Range>>& k, std::vector<std::vector<Range>>& v) {
  for (size_t sample = 0; sample < k.size(); ++sample)
    for (size_t group = 0; group < k[sample].size(); ++group) {
      k[sample][group].fold(v[sample][group]);
      v[sample][group] = k[sample][group];
    }
}

AttentionCalibration fold_layer(const LayerObservation& seen, const ModelConfig& config,
                                const QuantArgs& args, fp8::Format format,
                                std::span<const Sample> samples, int64_t layer) {
  SideCalibrator k("K", config, args), v("V", config, args);
  auto k_batches = k.fold(seen.k, samples, layer);
  auto v_batches = v.fold(seen.v, samples, layer);
  if (config.architecture->has_latent_attention) share_ranges(k_batches, v_batches);
  k.observe(k_batches);
  v.observe(v_batches);
  return {.layer = layer,
          .module = config.attention_module(layer),
          .ignored = false,
          .k = k.result(format),
          .v = v.result(format)};
}

KvQuantization quantization_of(const AttentionCalibration& layer, const ModelConfig& config) {
  return {.dtype = KvDType::kFp8E4m3,
          .k_scales = scale_of_each_head(layer.k.scales, config.cache_heads()),
          .v_scales = scale_of_each_head(layer.v.scales, config.cache_heads())};
}

/// One layer in quantized mode: its scales come from all samples before its attention reads K and V
/// with them.
AttentionCalibration calibrate_quantized(LayerForward& forward, const ModelConfig& config,
                                         const QuantArgs& args, fp8::Format format,
                                         std::span<const Sample> samples, int64_t index,
                                         bool ignored) {
  const bool is_last = index == config.last_attention_layer();
  AttentionCalibration layer =
      fold_layer(forward.observe(index), config, args, format, samples, index);
  layer.ignored = ignored;
  if (ignored) {
    if (!is_last) forward.advance_exact(index);
    return layer;
  }
  const KvQuantization quantization = quantization_of(layer, config);
  const bool may_clip = make_observer(args)->may_clip();
  SaturationCounts saturated;
  if (!is_last) {
    saturated = forward.advance(index, quantization).saturated;
  } else if (may_clip) {
    saturated = forward.count_saturated(index, quantization);
  }
  // Without clipping a count could only come from the rounding of amax / scale just over the
  // largest code.
  if (may_clip) {
    layer.k.num_saturated = saturated.k;
    layer.v.num_saturated = saturated.v;
  }
  return layer;
}

AttentionCalibration calibrate_exact(LayerForward& forward, const ModelConfig& config,
                                     const QuantArgs& args, fp8::Format format,
                                     std::span<const Sample> samples, int64_t index, bool ignored) {
  const bool is_last = index == config.last_attention_layer();
  // One pass does where nothing can clip; else the clipped values are counted before the layer
  // moves on.
  const bool one_pass = !is_last && (ignored || !make_observer(args)->may_clip());
  const LayerObservation seen =
      one_pass ? forward.observe_and_advance_exact(index) : forward.observe(index);
  AttentionCalibration layer = fold_layer(seen, config, args, format, samples, index);
  layer.ignored = ignored;
  if (one_pass) return layer;
  if (!ignored && make_observer(args)->may_clip()) {
    const SaturationCounts saturated =
        forward.count_saturated(index, quantization_of(layer, config));
    layer.k.num_saturated = saturated.k;
    layer.v.num_saturated = saturated.v;
  }
  if (!is_last) forward.advance_exact(index);
  return layer;
}

}  // namespace

std::vector<bool> ignored_layers(const Recipe& recipe, const ModelConfig& config) {
  const std::vector<ModuleName> modules = list_modules(config);
  for (const std::string& pattern : recipe.modifiers.front().targets)
    require_match(pattern, "target", modules);
  for (const std::string& pattern : recipe.modifiers.front().ignore)
    require_match(pattern, "ignore", modules);
  std::vector<bool> ignored;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.has_attention(layer)) {
      ignored.push_back(true);
      continue;
    }
    const auto matches = [&](const std::string& pattern) {
      return matches_target(pattern, config.attention_module(layer),
                            config.architecture->attention_class);
    };
    ignored.push_back(std::ranges::any_of(recipe.modifiers.front().ignore, matches));
  }
  if (std::ranges::all_of(ignored, [](bool value) { return value; }))
    fail("ignore leaves no attention module to calibrate");
  return ignored;
}

Calibration empty_calibration(const Recipe& recipe, const ModelConfig& config) {
  return {.kv_args = *recipe.modifiers.front().kv_cache_scheme,
          .kv_format = fp8::Format::kE4m3Fn,
          .num_hidden_layers = config.num_hidden_layers,
          .is_latent = config.architecture->has_latent_attention,
          .layers = {}};
}

Calibration calibrate(LayerForward& forward, const ModelConfig& config, const Recipe& recipe,
                      std::span<const Sample> samples, KvForward kv_forward,
                      Diagnostics& diagnostics) {
  const std::vector<bool> ignored = ignored_layers(recipe, config);
  Calibration calibration = empty_calibration(recipe, config);
  const auto calibrate_layer =
      kv_forward == KvForward::kQuantized ? calibrate_quantized : calibrate_exact;
  for (int64_t layer = 0; layer <= config.last_attention_layer(); ++layer) {
    if (!config.has_attention(layer)) {
      forward.advance_without_attention(layer);
      continue;
    }
    calibration.layers.push_back(calibrate_layer(forward, config, calibration.kv_args,
                                                 calibration.kv_format, samples, layer,
                                                 ignored[static_cast<size_t>(layer)]));
    const AttentionCalibration& done = calibration.layers.back();
    for (const auto& [name, side] : {std::pair{"K", &done.k}, std::pair{"V", &done.v}})
      if (side->statistics.range().amax().value == 0.0f)
        diagnostics.warn(std::string(name) + " of " + done.module +
                         " is zero everywhere; its scale is float32's epsilon");
  }
  return calibration;
}

}  // namespace kvcal
