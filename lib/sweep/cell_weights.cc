#include "sweep/cell_weights.h"

#include "stored/kv_scales.h"
#include "sweep/sweep_inputs.h"

namespace kvcal {
namespace {

/// The scales of one side of a layer: one number, or one for each head.
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

/// The scales of every layer that a manifest holds; those of ignored layers are null there.
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

std::string path_of(const TaskContext& context, const Cell& cell) {
  const Sweep& sweep = context.sweep;
  if (!sweep.plan.has_own_weights(cell)) return sweep.file.models[cell.model].path.string();
  return context.folder.checkpoint(sweep.plan.calibrations[*cell.calibration].fingerprint).string();
}

}  // namespace

CellWeights::CellWeights(const TaskContext& context, const Cell& cell, bool has_tokenizer)
    : context_(context),
      model_(path_of(context, cell), device_of(context.device, context.sweep, cell.model),
             has_tokenizer, context.diagnostics, &context.backend) {}

std::vector<LayerKvScales> CellWeights::scales_of(const Cell& cell) const {
  if (!cell.scales) return {};
  const ScaleSource& source = context_.sweep.file.scales[*cell.scales];
  if (source.kind == ScaleSource::Kind::kCalibrated) {
    const fs::path file = context_.folder.calibration(
        context_.sweep.plan.calibrations[*cell.calibration].fingerprint);
    const auto manifest = context_.folder.read(file);
    if (!manifest) fail(file.string(), ": the cell's calibration is not there");
    return in_context(file.string(), [&] { return scales_of_manifest(*manifest, model_.config); });
  }
  CacheOptions cache;
  cache.unit_scales = source.kind == ScaleSource::Kind::kUnit;
  if (source.kind == ScaleSource::Kind::kFile) cache.scales = source.path.string();
  return kvcal::scales_of(cache, model_, cell.kv_cache_dtype, context_.diagnostics);
}

}  // namespace kvcal
