#include <iostream>

#include "checkpoint/model_dir.h"
#include "commands.h"
#include "core/file.h"
#include "export/manifest.h"
#include "model/kv_scales.h"
#include "model/weights.h"
#include "table.h"

namespace kvcal {
namespace {

struct InspectOptions {
  std::string checkpoint;
  bool json = false;
};

/// The manifest in the folder, or beside it where several formats share one.
Json find_manifest(const fs::path& folder) {
  for (const fs::path& place : {folder, folder.parent_path()})
    if (fs::exists(place / kManifestName))
      return in_context((place / kManifestName).string(),
                        [&] { return parse_json(read_text(place / kManifestName)); });
  return nullptr;
}

struct LayerSize {
  uint64_t bytes = 0, parameters = 0;
};

LayerSize layer_size(const ModelDir& model_dir, const ModelConfig& config, int64_t layer) {
  const std::string prefix = config.layer_prefix(layer);
  LayerSize size;
  for (const std::string& name : model_dir.tensor_names())
    if (name.starts_with(prefix)) {
      const TensorView& tensor = model_dir.tensor(name);
      size.bytes += tensor.bytes.size();
      if (!is_kv_scale(name)) size.parameters += element_count(tensor.shape);
    }
  return size;
}

Json scale_json(const std::vector<Scale>& scales) {
  if (scales.size() == 1) return scales[0].value;
  Json list = Json::array();
  for (const Scale& scale : scales) list.push_back(scale.value);
  return list;
}

Json inspect_layers(const ModelDir& model_dir, const ModelConfig& config, const Json& manifest) {
  Json layers = Json::array();
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerSize size = layer_size(model_dir, config, layer);
    const TensorView* weight = model_dir.find(config.attention_module(layer) + ".k_proj.weight");
    Json row = {{"layer", layer},
                {"dtype", weight ? Json(name_of(weight->dtype)) : Json(nullptr)},
                {"bytes", size.bytes},
                {"parameters", size.parameters}};
    if (const auto scales = read_layer_scales(model_dir, config, layer)) {
      row["k_scale"] = scale_json(scales->k);
      row["v_scale"] = scale_json(scales->v);
    }
    const Json* seen = manifest.is_object() ? find_field(manifest, "layers") : nullptr;
    if (seen && seen->is_array() && static_cast<size_t>(layer) < seen->size())
      for (const char* key :
           {"k_amax", "v_amax", "k_saturated", "v_saturated", "k_head_amax", "v_head_amax"})
        if (const Json* value = find_field(seen->at(static_cast<size_t>(layer)), key))
          row[key] = *value;
    layers.push_back(std::move(row));
  }
  return layers;
}

std::string cell(const Json& row, const char* key) {
  const Json* value = find_field(row, key);
  if (!value) return "-";
  if (value->is_array()) return std::to_string(value->size()) + " heads";
  if (value->is_string()) return value->get<std::string>();
  return short_float(value->get<double>());
}

void print_report(const Json& report) {
  std::cout << report.at("path").get<std::string>() << ": "
            << report.at("model_type").get<std::string>() << ", "
            << report.at("parameters").get<uint64_t>() << " parameters, "
            << byte_text(report.at("bytes").get<double>())
            << ", KV scales: " << report.at("kv_scales").get<std::string>() << '\n';
  Table table({"layer", "dtype", "size", "k_scale", "v_scale", "k_amax", "v_amax", "k_clipped",
               "v_clipped"});
  for (const Json& row : report.at("layers")) {
    const auto clipped = [&](const char* key) {
      const Json* value = find_field(row, key);
      return value ? percent(value->get<double>()) : std::string("-");
    };
    table.add({std::to_string(row.at("layer").get<int64_t>()), cell(row, "dtype"),
               byte_text(row.at("bytes").get<double>()), cell(row, "k_scale"), cell(row, "v_scale"),
               cell(row, "k_amax"), cell(row, "v_amax"), clipped("k_saturated"),
               clipped("v_saturated")});
  }
  table.print(std::cout);
}

/// "compressed-tensors", "tgi", or "none": where the scales stand.
std::string scale_format(const ModelDir& model_dir, const ModelConfig& config) {
  // An ignored layer has none, so the first that has some tells.
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string module = config.attention_module(layer);
    if (model_dir.find(module + ".k_scale")) return "compressed-tensors";
    if (model_dir.find(module + ".kv_scale")) return "tgi";
  }
  return "none";
}

void run_inspect(const InspectOptions& options) {
  const ModelDir model_dir(options.checkpoint);
  const ModelConfig config = read_config(model_dir);
  in_context(options.checkpoint, [&] { Weights(model_dir, config); });
  uint64_t bytes = 0, parameters = 0;
  for (const std::string& name : model_dir.tensor_names()) {
    bytes += model_dir.tensor(name).bytes.size();
    if (!is_kv_scale(name)) parameters += element_count(model_dir.tensor(name).shape);
  }
  Json report = {{"path", options.checkpoint},
                 {"model_type", config.model_type},
                 {"parameters", parameters},
                 {"bytes", bytes},
                 {"kv_scales", scale_format(model_dir, config)}};
  report["layers"] = inspect_layers(model_dir, config, find_manifest(model_dir.path()));
  if (options.json) {
    std::cout << dump_json(report);
  } else {
    print_report(report);
  }
}

}  // namespace

void add_inspect(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show scales, extremes, clipping, dtype and size of every layer");
  command->add_option("checkpoint", options->checkpoint, "Model folder, with or without scales")
      ->required()
      ->check(is_not_empty());
  command->add_flag("--json", options->json, "Print JSON instead of a table");
  command->callback([options, &run] { run = [options] { run_inspect(*options); }; });
}

}  // namespace kvcal
