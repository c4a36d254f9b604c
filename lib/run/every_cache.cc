#include "run/every_cache.h"

#include <algorithm>

#include "forward/kv_cache.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// Whether engines can keep all of the model's K and V in the format.
bool fits(CacheFormat format, const ModelConfig& config) {
  return std::ranges::all_of(config.cached_layers(), [&](int64_t layer) {
    return head_problem(format, config, layer).empty();
  });
}

bool has_heads(const LayerKvScales& layer) {
  return layer.k.size() > 1 || layer.v.size() > 1;
}

std::vector<Scale> scales_of_heads(const KvTensorCalibration& side,
                                   const Calibration& calibration) {
  if (side.scales.size() > 1) return side.scales;
  std::vector<Scale> heads;
  for (const Range& range : side.head_ranges)
    heads.push_back(scale_from(Amax{range.amax().value * static_cast<float>(calibration.headroom)},
                               calibration.kv_format));
  return heads;
}

class Choice {
 public:
  Choice(const ModelConfig& config, const CalibratedScales& calibrated)
      : config_(config), calibrated_(calibrated) {}

  std::vector<VariantSpec> make() {
    add_unit("fp8, 1.0", KvDType::kFp8E4m3);
    add_calibrated("fp8, by layer", KvDType::kFp8E4m3, calibrated_.layers);
    add_calibrated("fp8, by head", KvDType::kFp8E4m3, calibrated_.heads);
    add_unit("fp8_e5m2", KvDType::kFp8E5m2);
    for (const CacheFormat format : kCacheFormats)
      if (fits(format, config_)) add_format(format);
    return std::move(specs_);
  }

 private:
  VariantSpec& add(const std::string& name, const CacheType& type) {
    CacheOptions options{.kv_cache_dtype = std::string(name_of(type))};
    return specs_.emplace_back(VariantSpec{.name = name, .folder = {}, .cache = options});
  }
  void add_unit(const std::string& name, const CacheType& type) {
    add(name, type).cache.unit_scales = true;
  }
  void add_calibrated(const std::string& name, const CacheType& type,
                      const std::vector<LayerKvScales>& scales) {
    if (!scales.empty()) add(name, type).scales = {scales, calibrated_.source};
  }
  void add_format(CacheFormat format) {
    const std::string name(name_of(format));
    if (!layout_of(format).needs_scales) {
      add(name, format);
      return;
    }
    // INT8 codes of scale 1.0 would be K and V rounded to integers.
    if (format != CacheFormat::kInt8) add_unit(name + ", 1.0", format);
    add_calibrated(name + ", by layer", format, calibrated_.layers);
  }

  const ModelConfig& config_;
  const CalibratedScales& calibrated_;
  std::vector<VariantSpec> specs_;
};

}  // namespace

CalibratedScales calibrated_scales_of(const Calibration& calibration) {
  const auto count = static_cast<size_t>(calibration.num_hidden_layers);
  const LayerKvScales none{.k = {}, .v = {}, .ignored = true};
  CalibratedScales scales{.layers = std::vector<LayerKvScales>(count, none),
                          .heads = std::vector<LayerKvScales>(count, none),
                          .source = "calibrated"};
  for (const AttentionCalibration& one : calibration.layers) {
    const auto layer = static_cast<size_t>(one.layer);
    if (one.ignored || layer >= count) continue;
    scales.layers[layer] = {.k = one.k.scales, .v = one.v.scales};
    scales.heads[layer] = {.k = scales_of_heads(one.k, calibration),
                           .v = scales_of_heads(one.v, calibration)};
  }
  scales.layers = with_joined_heads(std::move(scales.layers));
  return scales;
}

std::vector<VariantSpec> every_cache(const ModelConfig& config,
                                     const CalibratedScales& calibrated) {
  return Choice(config, calibrated).make();
}

std::vector<VariantSpec> every_cache(const LoadedModel& model, const CacheOptions& cache,
                                     Diagnostics& diagnostics) {
  const std::string single = cache.unit_scales                ? "--unit-scales"
                             : cache.fp8_attention            ? "--fp8-attention"
                             : cache.kv_cache_dtype != "auto" ? "--kv-cache-dtype"
                                                              : "";
  if (!single.empty())
    fail("--every-cache scores all types of cache, with scale 1.0 and with calibrated scales; ",
         single, " is for a single one");
  CalibratedScales calibrated;
  calibrated.source = cache.scales.empty() ? "checkpoint" : cache.scales;
  if (!cache.scales.empty() || read_checkpoint_scales(model.model_dir, model.config)) {
    const auto scales = scales_of(cache, model, KvDType::kFp8E4m3, diagnostics);
    if (std::ranges::any_of(scales, has_heads)) calibrated.heads = scales;
    calibrated.layers = with_joined_heads(scales);
  }
  return every_cache(model.config, calibrated);
}

}  // namespace kvcal
