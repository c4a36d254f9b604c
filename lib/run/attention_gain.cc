#include "run/attention_gain.h"

#include <algorithm>

#include "calib/scale_summary.h"
#include "run/calibration_run.h"

namespace kvcal {

CacheAttention compare_caches(const CalibrationSubject& subject, const ComparedRun& run,
                              Diagnostics& diagnostics) {
  const auto count = static_cast<size_t>(compared_samples(lengths_of(run.samples)));
  const CalibrationOptions options{.kv_forward = KvForward::kExact,
                                   .compared_samples = static_cast<int64_t>(count)};
  const Calibration found = measure(subject,
                                    {.backends = run.backends,
                                     .samples = run.samples.first(count),
                                     .layerwise = run.layerwise,
                                     .threads = run.threads},
                                    options, nullptr, diagnostics);
  CacheAttention attention{
      .layers = {},
      .calibrated = predicted_damage(found, subject.config, &AttentionDamage::calibrated),
      .unit = predicted_damage(found, subject.config, &AttentionDamage::unit)};
  for (const AttentionCalibration& layer : found.layers)
    if (layer.damage) attention.layers.emplace(layer.layer, *layer.damage);
  return attention;
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
