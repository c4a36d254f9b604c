#include "sweep_weights.h"

#include "stored/kv_scales.h"

namespace kvcal {
namespace {

/// One number, or one a head.
std::vector<Scale> scales_of_json(const Json& layer, const char* key) {
  const Json* value = find_field(layer, key);
  if (!value) fail_missing(key, "a scale, or one a head");
  std::vector<Scale> scales;
  const auto add = [&](const Json& one) {
    if (!one.is_number()) fail_kind(key, "a number or a list of numbers", one);
    scales.push_back({one.get<float>()});
  };
  if (value->is_array()) {
    for (const Json& one : *value) add(one);
  } else {
    add(*value);
  }
  return scales;
}

/// Scales of every layer as a manifest has them; those of ignored ones are null there.
std::vector<LayerKvScales> scales_of_manifest(const Json& manifest, const ModelConfig& config) {
  std::vector<LayerKvScales> all(static_cast<size_t>(config.num_hidden_layers));
  const Json* layers = find_field(manifest, "layers");
  if (!layers || !layers->is_array()) fail_missing("layers", "a list of layers");
  for (const Json& layer : *layers) {
    LayerKvScales& scales = all.at(static_cast<size_t>(required_int(layer, "layer")));
    scales.ignored = !find_field(layer, "k_scale");
    if (scales.ignored) continue;
    scales.k = scales_of_json(layer, "k_scale");
    scales.v = scales_of_json(layer, "v_scale");
    if (find_field(layer, "q_scale")) scales.q = scales_of_json(layer, "q_scale");
  }
  return all;
}

std::string path_of(const Sweep& sweep, const SweepFolder& folder, const Cell& cell) {
  if (!sweep.plan.has_own_weights(cell)) return sweep.file.models[cell.model].path.string();
  return folder.checkpoint(sweep.plan.calibrations[*cell.calibration].fingerprint).string();
}

}  // namespace

CellWeights::CellWeights(const SweepOptions& options, const Sweep& sweep, const SweepFolder& folder,
                         Backend& backend, const Cell& cell, bool has_tokenizer,
                         Diagnostics& diagnostics)
    : sweep_(sweep),
      folder_(folder),
      diagnostics_(diagnostics),
      model_(path_of(sweep, folder, cell), device_of(options, sweep, cell.model), has_tokenizer,
             diagnostics, &backend) {}

std::vector<LayerKvScales> CellWeights::scales_of(const Cell& cell) const {
  if (!cell.scales) return {};
  const ScaleSource& source = sweep_.file.scales[*cell.scales];
  if (source.kind == ScaleSource::Kind::kCalibrated) {
    const fs::path file =
        folder_.calibration(sweep_.plan.calibrations[*cell.calibration].fingerprint);
    const auto manifest = folder_.read(file);
    if (!manifest) fail(file.string(), ": the cell's calibration is not there");
    return in_context(file.string(), [&] { return scales_of_manifest(*manifest, model_.config); });
  }
  CacheOptions cache;
  cache.unit_scales = source.kind == ScaleSource::Kind::kUnit;
  if (source.kind == ScaleSource::Kind::kFile) cache.scales = source.path.string();
  return kvcal::scales_of(cache, model_, cell.kv_cache_dtype, diagnostics_);
}

}  // namespace kvcal
