#include "inspect/inspection.h"

#include "core/folder.h"
#include "export/manifest.h"
#include "inspect/manifest_reader.h"
#include "stored/kv_scales.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Tells tensors of the model from scales that quantization adds.
class ParameterCount {
 public:
  ParameterCount(const ModelConfig& config, const CheckpointQuantization& quantization)
      : kv_scales_(kv_scale_names(config)), quantization_(quantization) {}

  /// Parameters of one tensor.
  uint64_t of(const std::string& name, const TensorView& tensor) const {
    const bool is_scale = kv_scales_.contains(name) || quantization_.tensors.contains(name);
    return is_scale ? 0 : element_count(tensor.shape);
  }

 private:
  std::set<std::string, std::less<>> kv_scales_;
  const CheckpointQuantization& quantization_;
};

std::vector<Scale> manifest_scales(const Json& layer, const std::string& key) {
  std::vector<Scale> scales;
  for (const float value : magnitudes(layer, key)) scales.push_back({value});
  return scales;
}

void add_scales(InspectedLayer& row, const InspectionResult& found) {
  if (found.has_scales_elsewhere && row.statistics) {
    row.k_scales = manifest_scales(*row.statistics, "k_scale");
    row.v_scales = manifest_scales(*row.statistics, "v_scale");
    row.q_scales = manifest_scales(*row.statistics, "q_scale");
  } else if (auto scales =
                 read_layer_scales(scale_tensors_of(found.model_dir), found.config, row.layer)) {
    row.k_scales = std::move(scales->k);
    row.v_scales = std::move(scales->v);
    row.q_scales = std::move(scales->q);
  }
}

InspectedLayer inspected_layer(const InspectionResult& found, const ParameterCount& parameters,
                               int64_t layer) {
  InspectedLayer row{.layer = layer, .statistics = find_layer(found.manifest, layer)};
  if (const TensorView* weight =
          found.model_dir.find(found.config.attention_module(layer) + ".k_proj.weight"))
    row.dtype = weight->dtype;
  const std::string prefix = found.config.layer_prefix(layer);
  for (const ListedTensor& entry : found.tensors)
    if (entry.name.starts_with(prefix)) {
      row.bytes += entry.tensor->bytes.size();
      row.parameters += parameters.of(entry.name, *entry.tensor);
    }
  add_scales(row, found);
  return row;
}

std::string form_name(const ModelDir& model_dir, const ModelConfig& config) {
  const KvForm* form = find_form(scale_tensors_of(model_dir), config);
  return form ? std::string(form->name) : "none";
}

Json layer_json(const InspectedLayer& layer) {
  Json row = {{"layer", layer.layer},
              {"dtype", layer.dtype ? Json(name_of(*layer.dtype)) : Json(nullptr)},
              {"bytes", layer.bytes},
              {"parameters", layer.parameters}};
  const std::pair<const char*, const std::vector<Scale>*> scales[] = {
      {"k_scale", &layer.k_scales}, {"v_scale", &layer.v_scales}, {"q_scale", &layer.q_scales}};
  for (const auto& [key, values] : scales)
    if (!values->empty()) row[key] = scales_json(*values, false);
  if (layer.statistics)
    for (const char* key :
         {"k_amax", "v_amax", "k_saturated", "v_saturated", "k_head_amax", "v_head_amax"})
      if (const Json* value = find_field(*layer.statistics, key)) row[key] = *value;
  return row;
}

Json cache_json(const CacheSize& cache) {
  const auto common = [&](int64_t LayerCache::*size) {
    return cache.shapes.size() == 1 ? Json(cache.shapes[0].cache.*size) : Json(nullptr);
  };
  Json json = {{"heads", common(&LayerCache::heads)},
               {"k_dim", common(&LayerCache::k_dim)},
               {"v_dim", common(&LayerCache::v_dim)},
               {"layers", cache.layers},
               {"values_per_token", cache.values_per_token},
               {"bytes_per_token_16_bit", 2 * cache.values_per_token},
               {"bytes_per_token_fp8", cache.values_per_token},
               {"state_bytes_per_sequence", cache.state_bytes_per_sequence}};
  if (cache.shapes.size() == 1) return json;
  for (const CacheShape& shape : cache.shapes)
    json["shapes"].push_back({{"layers", shape.layers},
                              {"heads", shape.cache.heads},
                              {"k_dim", shape.cache.k_dim},
                              {"v_dim", shape.cache.v_dim}});
  return json;
}

/// nullptr: given has weights.
std::unique_ptr<HollowCheckpoint> hollow_of(const fs::path& given, const FamilyChoice& family) {
  const fs::path config = is_there(given) ? lone_config(given) : fs::path();
  return config.empty() ? nullptr : std::make_unique<HollowCheckpoint>(config, family);
}

Json tensor_json(const ListedTensor& entry) {
  return {{"name", entry.name},
          {"role", entry.role},
          {"kind", entry.group},
          {"dtype", name_of(entry.tensor->dtype)},
          {"shape", entry.tensor->shape.dims}};
}

}  // namespace

InspectionResult::InspectionResult(const std::string& checkpoint, const fs::path& scales_folder,
                                   const FamilyChoice& family)
    : path(checkpoint),
      hollow(hollow_of(checkpoint, family)),
      model_dir(hollow ? hollow->path() : fs::path(checkpoint)),
      config(read_model_config(model_dir, family)),
      quantization(read_checkpoint_quantization(model_dir, config)),
      has_scales_elsewhere(!scales_folder.empty()) {
  const Weights weights =
      in_context(checkpoint, [&] { return Weights(model_dir, config, &quantization); });
  properties = model_properties(config, weights);
  if (!quantization.linears.empty()) properties.push_back(quantization_property(quantization));
  tensors = list_tensors(model_dir, config);
  const ParameterCount count(config, quantization);
  for (const ListedTensor& entry : tensors) {
    bytes += entry.tensor->bytes.size();
    parameters += count.of(entry.name, *entry.tensor);
  }
  if (!hollow) manifest = find_manifest(has_scales_elsewhere ? scales_folder : model_dir.path());
  scale_form = has_scales_elsewhere ? "in " + scales_folder.string() : form_name(model_dir, config);
  cache = cache_size(config);
  consumers = consumers_of(model_dir, config);
  for (const int64_t layer : config.attention_layers())
    layers.push_back(inspected_layer(*this, count, layer));
}

InspectionResult inspect(const std::string& checkpoint, const fs::path& scales_folder,
                         const FamilyChoice& family) {
  return InspectionResult(checkpoint, scales_folder, family);
}

Json inspection_json(const InspectionResult& found, bool with_tensors) {
  Json report = {{"path", found.path},
                 {"model_type", found.config.model_type},
                 {"parameters", found.parameters},
                 {"bytes", found.bytes},
                 {"kv_scales", found.scale_form}};
  if (found.hollow) report["weights"] = "none, config.json alone";
  if (found.config.chosen) report["family"] = found.config.architecture->name;
  for (const Property& property : found.properties)
    report["architecture"][property.key] = property.value;
  report["tensors"] = Json::object();
  for (const report::TensorKind& group : group_sizes(found.tensors))
    report["tensors"][group.kind] = {{"count", group.count}, {"bytes", group.bytes}};
  report["kv_cache"] = cache_json(found.cache);
  report["supported_by"] = consumers_json(found.consumers);
  report["layers"] = Json::array();
  for (const InspectedLayer& layer : found.layers) report["layers"].push_back(layer_json(layer));
  if (with_tensors)
    for (const ListedTensor& entry : found.tensors)
      report["all_tensors"].push_back(tensor_json(entry));
  return report;
}

}  // namespace kvcal
