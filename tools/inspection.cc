#include "inspection.h"

#include "commands.h"
#include "consumers.h"
#include "core/file.h"
#include "core/folder.h"
#include "export/manifest.h"
#include "recipe/recipe.h"
#include "stored/kv_forms.h"
#include "stored/kv_scales.h"
#include "stored/weights.h"
#include "tensor_list.h"

namespace kvcal {
namespace {

/// The manifest in the folder, or beside it where several formats share one.
Json find_manifest(const fs::path& folder) {
  for (const fs::path& place : {folder, folder.parent_path()})
    if (is_there(place / kManifestName))
      return in_context((place / kManifestName).string(),
                        [&] { return parse_json(read_text(place / kManifestName)); });
  return nullptr;
}

struct LayerSize {
  uint64_t bytes = 0, parameters = 0;
};

LayerSize layer_size(const ModelDir& model_dir, const ModelConfig& config,
                     const CheckpointQuantization& quantization, int64_t layer) {
  const std::string prefix = config.layer_prefix(layer);
  const auto kv_scales = kv_scale_names(config);
  LayerSize size;
  for (const std::string& name : model_dir.tensor_names())
    if (name.starts_with(prefix)) {
      const TensorView& tensor = model_dir.tensor(name);
      size.bytes += tensor.bytes.size();
      if (!kv_scales.contains(name) && !quantization.tensors.contains(name))
        size.parameters += element_count(tensor.shape);
    }
  return size;
}

void copy_fields(Json& row, const Json& seen, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const Json* value = find_field(seen, key)) row[key] = *value;
}

/// Of the layers that attend.
Json inspect_layers(const ModelDir& model_dir, const ModelConfig& config,
                    const CheckpointQuantization& quantization, const Json& manifest,
                    bool has_scales_elsewhere) {
  Json layers = Json::array();
  for (const int64_t layer : attention_layers(config)) {
    const LayerSize size = layer_size(model_dir, config, quantization, layer);
    const TensorView* weight = model_dir.find(config.attention_module(layer) + ".k_proj.weight");
    Json row = {{"layer", layer},
                {"dtype", weight ? Json(name_of(weight->dtype)) : Json(nullptr)},
                {"bytes", size.bytes},
                {"parameters", size.parameters}};
    if (const auto scales = read_layer_scales(scale_tensors_of(model_dir), config, layer)) {
      row["k_scale"] = scales_json(scales->k, false);
      row["v_scale"] = scales_json(scales->v, false);
      if (!scales->q.empty()) row["q_scale"] = scales_json(scales->q, false);
    }
    if (const Json* seen = find_layer(manifest, layer)) {
      if (has_scales_elsewhere) copy_fields(row, *seen, {"k_scale", "v_scale", "q_scale"});
      copy_fields(row, *seen,
                  {"k_amax", "v_amax", "k_saturated", "v_saturated", "k_head_amax", "v_head_amax"});
    }
    layers.push_back(std::move(row));
  }
  return layers;
}

/// The name of the form that the scales have, or "none".
std::string scale_format(const ModelDir& model_dir, const ModelConfig& config) {
  // An ignored layer has none, so the first that has some tells.
  for (const int64_t layer : attention_layers(config)) {
    const std::string module = config.attention_module(layer);
    for (const KvForm& form : kv_forms())
      if (model_dir.find(module + std::string(form.k))) return std::string(form.name);
  }
  return "none";
}

}  // namespace

const Json* find_layer(const Json& manifest, int64_t layer) {
  const Json* layers = manifest.is_object() ? find_field(manifest, "layers") : nullptr;
  if (!layers || !layers->is_array()) return nullptr;
  for (const Json& entry : *layers)
    if (entry.is_object() && optional_int(entry, "layer") == layer) return &entry;
  return nullptr;
}

Inspection::Inspection(const std::string& checkpoint) : Inspection(checkpoint, checkpoint, false) {}

Inspection::Inspection(const std::string& checkpoint, const fs::path& scales_folder)
    : Inspection(checkpoint, scales_folder, true) {}

Inspection::Inspection(const std::string& checkpoint, const fs::path& scales_folder,
                       bool is_elsewhere)
    : model_dir(checkpoint),
      config(read_config(model_dir)),
      quantization(read_checkpoint_quantization(model_dir, config, matches_target)),
      has_scales_elsewhere(is_elsewhere) {
  const Weights weights =
      in_context(checkpoint, [&] { return Weights(model_dir, config, &quantization); });
  facts = model_facts(config, weights);
  if (!quantization.linears.empty()) facts.push_back(quantization_fact(quantization));
  const std::vector<ListedTensor> listed = tensors();
  const auto kv_scales = kv_scale_names(config);
  uint64_t bytes = 0, parameters = 0;
  for (const ListedTensor& entry : listed) {
    bytes += entry.tensor->bytes.size();
    if (!kv_scales.contains(entry.name) && !quantization.tensors.contains(entry.name))
      parameters += element_count(entry.tensor->shape);
  }
  manifest = find_manifest(is_elsewhere ? scales_folder : model_dir.path());
  report = {{"path", checkpoint},
            {"model_type", config.model_type},
            {"parameters", parameters},
            {"bytes", bytes},
            {"kv_scales",
             is_elsewhere ? "in " + scales_folder.string() : scale_format(model_dir, config)}};
  for (const Fact& fact : facts) report["architecture"][fact.key] = fact.value;
  report["tensors"] = tensor_kinds(listed);
  report["kv_cache"] = cache_json(config);
  report["supported_by"] = consumers_json(model_dir, config);
  report["layers"] = inspect_layers(model_dir, config, quantization, manifest, is_elsewhere);
}

}  // namespace kvcal
