#include "calib/compared_scales.h"

#include "family/architecture.h"
#include "quant/observer.h"

namespace kvcal {
namespace {

std::vector<float> scale_of_each_head(const std::vector<Scale>& scales, int64_t heads) {
  std::vector<float> result;
  for (int64_t head = 0; head < heads; ++head)
    result.push_back(scales[scales.size() == 1 ? 0 : static_cast<size_t>(head)].value);
  return result;
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

}  // namespace

KvQuantization quantization_of(const AttentionCalibration& layer, const ModelConfig& config,
                               const CalibrationOptions& options) {
  const int64_t heads = config.cache(layer.layer).heads;
  KvQuantization quantization{.dtype = options.derive.kv_dtype,
                              .k_scales = scale_of_each_head(layer.k.scales, heads),
                              .v_scales = scale_of_each_head(layer.v.scales, heads)};
  if (layer.q)
    quantization.q_scales =
        scale_of_each_head(layer.q->scales, config.attention(layer.layer).heads);
  return quantization;
}

bool judges_attention(const PlannedAttention& planned) {
  return !planned.ignored && make_observer(planned.kv)->judges_attention();
}

void choose_by_attention(LayerForward& forward, const ModelConfig& config,
                         const PlannedAttention& planned, const CalibrationOptions& options,
                         AttentionCalibration& layer) {
  const auto observer = make_observer(planned.kv);
  const bool is_tied = config.architecture->has_latent_attention && options.derive.ties_latent;
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
    KvQuantization& candidate = candidates.emplace_back(quantization_of(layer, config, options));
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

AttentionDamage damage_of(LayerForward& forward, const ModelConfig& config,
                          const AttentionCalibration& layer, const CalibrationOptions& options) {
  const std::vector<float> ones(static_cast<size_t>(config.cache(layer.layer).heads), 1.0f);
  const KvQuantization candidates[] = {
      quantization_of(layer, config, options),
      {.dtype = options.derive.kv_dtype, .k_scales = ones, .v_scales = ones}};
  const AttentionComparison found = forward.compare_attention(layer.layer, candidates);
  return {.calibrated = found.of(0), .unit = found.of(1)};
}

std::optional<ComparedScales> compared_scales(const AttentionCalibration& layer) {
  if (!layer.damage) return std::nullopt;
  return ComparedScales{.damage = *layer.damage, .k = layer.k.scales, .v = layer.v.scales};
}

}  // namespace kvcal
