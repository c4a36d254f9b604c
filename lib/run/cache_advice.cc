#include "run/cache_advice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "run/every_cache.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

std::vector<LayerKvScales> scales_of(const VariantSpec& spec, const CacheType& type,
                                     const ModelConfig& config) {
  if (spec.scales) return scales_as(type, spec.scales->layers);
  if (needs_scales(type)) return unit_scales(config);
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers));
}

std::string_view source_of(const VariantSpec& spec, const CacheType& type) {
  if (spec.scales) return "calibrated";
  return needs_scales(type) ? "unit" : "dynamic";
}

Json shares_json(const SideShares& shares) {
  return {{"clipped", shares.clipped},
          {"to_zero", shares.to_zero},
          {"relative_error", shares.relative_error}};
}

Json layers_json(const std::vector<LayerCacheLoss>& layers) {
  Json list = Json::array();
  for (const LayerCacheLoss& one : layers) {
    const std::vector<LayerCacheLoss> alone{one};
    list.push_back({{"layer", one.layer},
                    {"k", shares_json(shares_of(alone, &LayerCacheLoss::k))},
                    {"v", shares_json(shares_of(alone, &LayerCacheLoss::v))}});
  }
  return list;
}

}  // namespace

std::vector<AdvisedCache> advise_caches(const CalibrationResult& result) {
  CalibratedScales calibrated;
  if (result.calibration.kv_format == fp8::Format::kE4m3Fn)
    calibrated = calibrated_scales_of(result.calibration);
  const CacheLosses losses(result.calibration, result.config);
  std::vector<AdvisedCache> caches;
  for (const VariantSpec& spec : every_cache(result.config, calibrated)) {
    const CacheType type = parse_cache_type(spec.cache.kv_cache_dtype);
    const std::vector<LayerKvScales> scales = scales_of(spec, type, result.config);
    AdvisedCache cache{
        .label = {.name = spec.name,
                  .type = type,
                  .scales_source = std::string(source_of(spec, type)),
                  .bytes_per_token = KvCache::bytes_per_token(result.config, type, scales)},
        .layers = losses.of(type, scales)};
    if (cache.layers.empty()) fail("the statistics have no K and V, nothing can be said of caches");
    cache.loss = expected_loss(cache.layers);
    caches.push_back(std::move(cache));
  }
  std::ranges::stable_sort(caches, {}, &AdvisedCache::loss);
  return caches;
}

SideShares shares_of(const std::vector<LayerCacheLoss>& layers, SideLoss LayerCacheLoss::*side) {
  CodeErrors sum;
  double error = 0;
  for (const LayerCacheLoss& layer : layers) {
    sum.add((layer.*side).codes);
    error += (layer.*side).channel_error / static_cast<double>(layers.size());
  }
  if (sum.values == 0) return {};
  return {.clipped = sum.clipped / sum.values,
          .to_zero = sum.to_zero / sum.values,
          .relative_error = std::sqrt(error)};
}

Json to_json(const std::vector<AdvisedCache>& caches) {
  Json list = Json::array();
  for (const AdvisedCache& cache : caches)
    list.push_back({{"name", cache.label.name},
                    {"kv_cache_dtype", name_of(cache.label.type)},
                    {"scales", cache.label.scales_source},
                    {"bytes_per_token", cache.label.bytes_per_token},
                    {"expected_loss", cache.loss},
                    {"k", shares_json(shares_of(cache.layers, &LayerCacheLoss::k))},
                    {"v", shares_json(shares_of(cache.layers, &LayerCacheLoss::v))},
                    {"layers", layers_json(cache.layers)}});
  return {{"caches", std::move(list)}};
}

}  // namespace kvcal
