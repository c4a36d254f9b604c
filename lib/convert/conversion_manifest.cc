#include "convert/conversion_manifest.h"

#include <cmath>

#include "export/manifest.h"

namespace kvcal {
namespace {

/// The source's entry of a module, or a new one without calibration data.
Json entry_of(const Json& layers, const AttentionCalibration& layer) {
  if (layers.is_array())
    for (const Json& entry : layers)
      if (entry.is_object() && entry.value("module", Json()) == Json(layer.module)) return entry;
  return {{"layer", layer.layer}, {"module", layer.module}};
}

/// Scales as one written format holds them; with several formats, the scales that all are made
/// from.
HeldScales written_scales(const AttentionCalibration& layer, const WrittenFormats& formats) {
  if (formats.writer && !layer.ignored) return formats.writer->held(layer, formats.tp_size);
  return {layer.k.scales, layer.v.scales};
}

Json layers_json(const Calibration& calibration, const Json& source,
                 const WrittenFormats& formats) {
  Json layers = Json::array();
  for (const AttentionCalibration& layer : calibration.layers) {
    Json entry = entry_of(source, layer);
    const HeldScales scales = written_scales(layer, formats);
    entry["k_scale"] = scales_json(scales.k, layer.ignored);
    entry["v_scale"] = scales_json(scales.v, layer.ignored);
    for (const char* key : {"q_scale", "q_amax", "q_head_amax", "q_saturated", "q_histogram"})
      if (!layer.q) entry.erase(key);
    if (const auto found = entry.find("convergence");
        !layer.q && found != entry.end() && found->is_object())
      for (const char* key : {"q_amax", "q_interval"}) found->erase(key);
    if (layer.q) entry["q_scale"] = scales_json(layer.q->scales, layer.ignored);
    layers.push_back(std::move(entry));
  }
  return layers;
}

/// Rounds to four decimals: the last digits of a logarithm differ between machines.
double rounded(double octaves) {
  return std::round(octaves * 1e4) / 1e4;
}

Json losses_json(const std::vector<FormatLosses>& losses) {
  Json all = Json::object();
  for (const FormatLosses& format : losses) {
    Json& layers = all[format.format] = Json::array();
    for (const LayerLoss& loss : format.layers)
      if (loss.k_octaves > 0.0 || loss.v_octaves > 0.0)
        layers.push_back({{"layer", loss.layer},
                          {"k_octaves", rounded(loss.k_octaves)},
                          {"v_octaves", rounded(loss.v_octaves)}});
  }
  return all;
}

}  // namespace

Json conversion_manifest(const Conversion& conversion, const std::string& version,
                         const WrittenFormats& formats) {
  const SourceScales& source = conversion.source();
  const Calibration& calibration = conversion.input().calibration;
  Json manifest = source.manifest.is_object() ? source.manifest : Json::object();
  manifest["kvcal_version"] = version;
  manifest["created_by"] = "kvcal " + version;
  if (!manifest.contains("recipe") || !manifest["recipe"].is_object())
    manifest["recipe"] = Json::object();
  manifest["recipe"]["kv_cache_scheme"] =
      calibration.layers.empty() ? Json() : to_json(calibration.kv_args);
  manifest.erase("summary");  // of the source's scales
  const Json before = manifest.value("layers", Json());
  manifest["layers"] = layers_json(calibration, before, formats);
  manifest["conversion"] = {{"form", source.form.empty() ? Json() : Json(source.form)},
                            {"scales", source.path},
                            {"keys_observed", name_of(source.keys)},
                            {"kv_cache_dtype", fp8::name_of(source.format)},
                            {"lost", losses_json(formats.losses)}};
  if (const ModelConfig& config = conversion.config(); config.chosen) {
    manifest["conversion"]["family"] = config.architecture->name;
    if (config.chosen.is_from_file())
      manifest["conversion"]["family_sha256"] = config.chosen.file_sha256;
  }
  return manifest;
}

}  // namespace kvcal
