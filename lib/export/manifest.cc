#include "export/manifest.h"

#include "core/sha256.h"

namespace kvcal {
namespace {

/// One number, or one a head; null for an ignored layer.
Json scales_json(const std::vector<Scale>& scales, bool ignored) {
  if (ignored) return nullptr;
  if (scales.size() == 1) return scales[0].value;
  Json list = Json::array();
  for (const Scale& scale : scales) list.push_back(scale.value);
  return list;
}

Json head_amax_json(const KvStatistics& statistics) {
  Json list = Json::array();
  for (const Range& range : statistics.head_ranges) list.push_back(range.amax().value);
  return list;
}

double saturated_fraction(const KvTensorCalibration& side) {
  const uint64_t values = side.statistics.num_values;
  return values == 0 ? 0.0 : static_cast<double>(side.num_saturated) / static_cast<double>(values);
}

Json layer_json(const AttentionCalibration& layer) {
  return {{"layer", layer.layer},
          {"module", layer.module},
          {"k_amax", layer.k.statistics.range().amax().value},
          {"v_amax", layer.v.statistics.range().amax().value},
          {"k_scale", scales_json(layer.k.scales, layer.ignored)},
          {"v_scale", scales_json(layer.v.scales, layer.ignored)},
          {"k_head_amax", head_amax_json(layer.k.statistics)},
          {"v_head_amax", head_amax_json(layer.v.statistics)},
          {"k_saturated", saturated_fraction(layer.k)},
          {"v_saturated", saturated_fraction(layer.v)}};
}

}  // namespace

Json make_manifest(const ManifestInput& input, const Recipe& recipe,
                   const Calibration& calibration) {
  Json manifest = Json::object();
  manifest["kvcal_version"] = input.version;
  manifest["created_by"] = "kvcal " + input.version;
  manifest["model"] = {
      {"path", input.model_path}, {"model_type", input.model_type}, {"sha256", input.model_sha256}};
  manifest["recipe"] = {{"path", input.recipe_path},
                        {"sha256", sha256_hex(recipe.source)},
                        {"targets", recipe.modifiers.front().targets},
                        {"ignore", recipe.modifiers.front().ignore},
                        {"kv_cache_scheme", to_json(calibration.kv_args)}};
  manifest["dataset"] = {{"path", input.dataset_path},
                         {"sha256", input.dataset_sha256},
                         {"sample_indices", input.sample_indices},
                         {"num_samples", input.sample_indices.size()},
                         {"num_tokens", input.num_tokens}};
  manifest["compute_dtype"] = input.compute_dtype;
  manifest["kv_forward"] = input.kv_forward;
  if (!input.leave_out_machine) {
    manifest["device"] = input.device;
    manifest["seconds"] = input.seconds;
    manifest["peak_rss_bytes"] = input.peak_rss_bytes;
  }
  manifest["layers"] = Json::array();
  for (const AttentionCalibration& layer : calibration.layers)
    manifest["layers"].push_back(layer_json(layer));
  manifest["linears"] = Json::object();
  return manifest;
}

}  // namespace kvcal
