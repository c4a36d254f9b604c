#include "convert/source_scales.h"

#include <algorithm>

#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "export/checkpoint_copy.h"
#include "export/manifest.h"
#include "export/writer.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Whether a folder's name is that of one format in an output of several.
bool is_format_folder(const fs::path& folder) {
  const std::vector<std::string> known = kWriters.names();
  const std::string joined = folder.filename().string();
  return std::ranges::all_of(split(joined, '+'), [&](std::string_view name) {
    return std::ranges::find(known, name) != known.end();
  });
}

/// The manifest in the folder, or beside it where several formats share one; null: none.
Json find_manifest(const fs::path& folder) {
  // parent_path gives the wrong parent for "out/tgi/" and for ".".
  fs::path whole = resolved(folder.empty() ? fs::path(".") : folder);
  if (!whole.has_filename()) whole = whole.parent_path();
  for (const fs::path& place : {folder, whole.parent_path()}) {
    const fs::path file = place / kManifestName;
    if (!is_there(file) || (place != folder && !is_format_folder(whole))) continue;
    return in_context(file.string(), [&] { return parse_json(read_text(file)); });
  }
  return nullptr;
}

/// Position of K that a conversion recorded; without a record, after RoPE, as kvcal observes K.
KeyPosition position_of(const Json& manifest) {
  const Json* keys = member(manifest, "conversion", "keys_observed");
  if (!keys) return KeyPosition::kAfterRope;
  for (const KeyPosition position : {KeyPosition::kAfterRope, KeyPosition::kBeforeRope})
    if (*keys == Json(name_of(position))) return position;
  return KeyPosition::kNotSaid;
}

/// Position where the usual writer of the quant_method, or else of the names, observes K.
KeyPosition usual_position(const KvScaleNames& names, const Json& config) {
  const Json* method = member(config, "quantization_config", "quant_method");
  const StoredFormat* stored =
      method && method->is_string() ? format_of_method(method->get<std::string>()) : nullptr;
  return stored ? stored->keys.value_or(names.keys) : names.keys;
}

/// The scheme that compressed-tensors wrote, or that of a kvcal run.
Json scheme_of(const Json& config, const Json& manifest) {
  const Json* scheme = member(config, "quantization_config", "kv_cache_scheme");
  if (!scheme || !scheme->is_object() || !scheme->contains("strategy"))
    scheme = member(manifest, "recipe", "kv_cache_scheme");
  return scheme ? *scheme : Json();
}

/// config.json with the layers that a kvcal run ignored, which not all formats can express.
Json with_ignored(Json config, const Json& manifest) {
  const Json* layers = member(manifest, "layers");
  if (!layers || !layers->is_array()) return config;
  for (const Json& layer : *layers) {
    const Json* module = member(layer, "module");
    if (!module || !layer.contains("k_scale") || !layer["k_scale"].is_null()) continue;
    Json& quantization = config["quantization_config"];
    if (!quantization.is_object()) quantization = Json::object();
    Json& ignore = quantization["ignore"];
    if (!ignore.is_array()) ignore = Json::array();
    ignore.push_back(*module);
  }
  return config;
}

SourceScales read_tensors(const ScaleTensors& given, const ModelConfig& config,
                          const fs::path& folder) {
  SourceScales source{.path = given.path, .manifest = find_manifest(folder)};
  const Json known = with_ignored(given.config, source.manifest);
  const ScaleTensors tensors{.path = given.path, .find = given.find, .config = known};
  auto layers = read_all_scales(tensors, config);
  if (!layers) return source;
  source.layers = *std::move(layers);
  const KvScaleNames& names = *find_kv_scale_format(tensors, config);
  source.format = names.name;
  const auto dialect = in_context(tensors.path, [&] { return read_dialect(tensors.config); });
  if (dialect) source.dialect = *dialect;
  if (names.is_per_channel) source.dialect = KvFormat::int8();
  source.scheme = scheme_of(tensors.config, source.manifest);
  source.keys = source.manifest.is_null() ? usual_position(names, tensors.config)
                                          : position_of(source.manifest);
  return source;
}

/// Whether the keys of config.json that an overlay sets ask for an INT8 cache.
bool asks_for_int8(const Json& config) {
  const Json* quantization = member(config, "quantization_config");
  const Json* method = quantization ? member(*quantization, "quant_method") : nullptr;
  if (!method || !method->is_string()) return false;
  const KvScheme scheme = read_kv_scheme({.format = format_of_method(method->get<std::string>()),
                                          .json = *quantization,
                                          .where = "quantization_config"});
  return scheme.cache == KvScheme::Cache::kInt8;
}

SourceScales read_overlay_scales(const fs::path& folder, const ModelConfig& config) {
  const Overlay overlay = read_overlay(folder);
  if (!is_type_of(overlay.model_type, config) ||
      overlay.num_hidden_layers != config.num_hidden_layers)
    fail(folder.string(), ": is of a '", overlay.model_type, "' of ",
         counted(overlay.num_hidden_layers, "layer"), ", the checkpoint is a '", config.model_type,
         "' of ", config.num_hidden_layers);
  const SafetensorsFile file(folder / kScalesFileName);
  SourceScales source =
      read_tensors({.path = folder.string(),
                    .find = [&](std::string_view name) { return file.find(name); },
                    .config = overlay.config},
                   config, folder);
  if (source.layers.empty()) fail(folder.string(), ": has no scale of this model");
  if (asks_for_int8(overlay.config)) source.dialect = KvFormat::int8();
  return source;
}

/// Whether the manifest says that scales of an NVFP4 cache are those of FP8, too.
bool has_fp8_rule(const Json& manifest) {
  const Json* scale = member(manifest, "kv_cache", "scale");
  return scale && *scale == "amax / 448";
}

/// Scales at a place that lie beside a checkpoint: in a file, or in a folder of ranks.
struct FoundScales {
  const StoredFormat* stored = nullptr;
  fs::path path;
};

std::optional<FoundScales> find_beside(const fs::path& place) {
  for (const StoredFormat* stored : stored_formats())
    if (stored->find_beside)
      if (const auto path = stored->find_beside(place)) return FoundScales{stored, *path};
  return std::nullopt;
}

/// Each layer's largest over the ranks.
std::vector<LayerKvScales> merged_ranks(const std::vector<std::vector<Scale>>& ranks,
                                        const ModelConfig& config) {
  std::vector<LayerKvScales> layers(static_cast<size_t>(config.num_hidden_layers));
  for (const int64_t layer : config.attention_layers()) {
    Scale largest{0.0f};
    for (const std::vector<Scale>& rank : ranks)
      largest.value = std::max(largest.value, rank[static_cast<size_t>(layer)].value);
    LayerKvScales& own = layers[static_cast<size_t>(layer)];
    own.k = own.v = {largest};
  }
  return layers;
}

SourceScales scales_beside(const FoundScales& found, const ModelConfig& config) {
  const auto& [stored, place] = found;
  ScalesBeside read = stored->read_beside(place, config);
  SourceScales source{
      .format = std::string(stored->name),
      .path = place.string(),
      .layers = read.ranks.empty() ? std::move(read.layers) : merged_ranks(read.ranks, config),
      .ranks = std::move(read.ranks),
      .dialect = read.format,
      .may_be_raised = stored->may_raise_scales_to_one};
  source.manifest = find_manifest(is_folder(place) ? place : place.parent_path());
  source.scheme = scheme_of(Json::object(), source.manifest);
  source.keys = source.manifest.is_null() ? stored->keys.value_or(KeyPosition::kNotSaid)
                                          : position_of(source.manifest);
  return source;
}

}  // namespace

SourceScales read_scales_of_checkpoint(const ModelDir& model, const ModelConfig& config) {
  read_dialect(model);  // refuses an unknown word also where there are no scales
  // Scales of 4-bit or affine caches are neither FP8's nor INT8's.
  const KvScheme scheme = read_kv_scheme(read_quantization_config(model));
  if (scheme.cache == KvScheme::Cache::kOther)
    fail(scheme.where, ": ", scheme.problem, "; only scales of FP8 and INT8 caches are converted");
  SourceScales source = read_tensors(scale_tensors_of(model), config, model.given_path());
  if (scheme.cache == KvScheme::Cache::kInt8) source.dialect = KvFormat::int8();
  if (scheme.cache == KvScheme::Cache::kNvfp4 && !has_fp8_rule(source.manifest))
    fail(scheme.where,
         " is NVFP4, whose scales are amax / 448 or amax / 2688 by the tool that made "
         "them, and no manifest of kvcal says which; make FP8's by kvcal calibrate or scales");
  return source;
}

SourceScales read_scales_of(const fs::path& place, const ModelConfig& config) {
  if (!is_there(place)) fail(place.string(), ": no such file or folder");
  const auto beside = find_beside(place);
  if (!is_folder(place) && !beside)
    fail(place.string(),
         ": expected a JSON file of scales, or a folder: rank files, an overlay, a checkpoint");
  if (beside && (!is_folder(place) || beside->stored->ranks_have_own_config))
    return scales_beside(*beside, config);
  if (is_there(place / kOverlayName)) return read_overlay_scales(place, config);
  if (beside && !is_there(place / "config.json")) return scales_beside(*beside, config);
  const ModelDir other(place);
  const ModelConfig own = read_model_config(other, config.chosen);
  if (own.model_type != config.model_type || own.num_hidden_layers != config.num_hidden_layers)
    fail(place.string(), ": is a '", own.model_type, "' of ",
         counted(own.num_hidden_layers, "layer"), ", the checkpoint is a '", config.model_type,
         "' of ", config.num_hidden_layers);
  SourceScales source = read_scales_of_checkpoint(other, config);
  if (source.layers.empty() && beside) return scales_beside(*beside, config);
  if (source.layers.empty()) fail(place.string(), ": has no KV scales");
  return source;
}

std::vector<std::string> warnings_of(const SourceScales& source) {
  if (source.layers.empty()) return {};
  std::vector<std::string> warnings;
  const auto all_are = [&](const auto& test) {
    return std::ranges::all_of(source.layers, [&](const LayerKvScales& layer) {
      return std::ranges::all_of(layer.k, test, &Scale::value) &&
             std::ranges::all_of(layer.v, test, &Scale::value);
    });
  };
  if (all_are([](float scale) { return scale == 1.0f; }))
    warnings.push_back(source.path +
                       ": every scale is 1.0, which is no calibration but what engines take "
                       "without one");
  else if (source.may_be_raised && all_are([](float scale) { return scale >= 1.0f; }))
    warnings.push_back(source.path +
                       ": no scale is below 1.0: ModelOpt raises smaller ones to that when it "
                       "exports for TensorRT-LLM");
  if (source.keys == KeyPosition::kBeforeRope)
    warnings.push_back(
        source.path +
        (source.manifest.is_null() ? ": scales of this form (" + source.format + ") are made"
                                   : std::string(": its manifest says that scales are made")) +
        " of K before RoPE, and the cache holds K after it: its largest magnitude may be "
        "up to sqrt(2) = 1.414 times larger, which saturates, or as much smaller");
  return warnings;
}

}  // namespace kvcal
