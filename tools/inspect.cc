#include <algorithm>
#include <iostream>
#include <sstream>

#include "checkpoint/kv_forms.h"
#include "checkpoint/model_dir.h"
#include "commands.h"
#include "consumers.h"
#include "core/file.h"
#include "export/manifest.h"
#include "export/writer.h"
#include "inspect_html.h"
#include "model/kv_scales.h"
#include "model/weights.h"
#include "model_facts.h"
#include "recipe/recipe.h"
#include "table.h"
#include "tensor_list.h"

namespace kvcal {
namespace {

struct InspectOptions {
  std::string checkpoint, html;
  bool json = false, tensors = false, overwrite = false;
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

/// What the manifest holds of a layer; nullptr for nothing.
const Json* find_layer(const Json& manifest, int64_t layer) {
  const Json* layers = manifest.is_object() ? find_field(manifest, "layers") : nullptr;
  if (!layers || !layers->is_array()) return nullptr;
  for (const Json& entry : *layers)
    if (entry.is_object() && optional_int(entry, "layer") == layer) return &entry;
  return nullptr;
}

/// Of the layers that attend.
Json inspect_layers(const ModelDir& model_dir, const ModelConfig& config,
                    const CheckpointQuantization& quantization, const Json& manifest) {
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
    if (const Json* seen = find_layer(manifest, layer))
      for (const char* key :
           {"k_amax", "v_amax", "k_saturated", "v_saturated", "k_head_amax", "v_head_amax"})
        if (const Json* value = find_field(*seen, key)) row[key] = *value;
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

/// "heading" and below it one line a pair, the second words in a column of their own.
void print_pairs(const std::string& heading,
                 const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::cout << '\n' << heading << '\n';
  size_t width = 0;
  for (const auto& [label, text] : pairs) width = std::max(width, label.size());
  for (const auto& [label, text] : pairs)
    std::cout << "  " << label << std::string(width - label.size() + 2, ' ') << text << '\n';
}

void print_architecture(const std::vector<Fact>& facts) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Fact& fact : facts) {
    std::string label = fact.key;
    std::ranges::replace(label, '_', ' ');
    if (!fact.text.empty()) pairs.emplace_back(label, fact.text);
  }
  print_pairs("architecture", pairs);
}

void print_sizes(const Json& report) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [kind, sizes] : report.at("tensors").items())
    pairs.emplace_back(kind, std::to_string(sizes.at("count").get<int64_t>()) + ", " +
                                 byte_text(sizes.at("bytes").get<double>()));
  print_pairs("tensors", pairs);
  const Json& cache = report.at("kv_cache");
  print_pairs("KV cache of one token",
              {{"16 bits", byte_text(cache.at("bytes_per_token_16_bit").get<double>())},
               {"FP8", byte_text(cache.at("bytes_per_token_fp8").get<double>())}});
  const auto states = cache.at("state_bytes_per_sequence").get<double>();
  if (states > 0) print_pairs("recurrent states of one sequence", {{"float32", byte_text(states)}});
}

std::string engine_text(const Json& engine) {
  const auto note = engine.at("note").get<std::string>();
  return engine.at("reads").get<std::string>() + (note.empty() ? "" : ": " + note);
}

void print_consumers(const Json& consumers) {
  const auto reason = [](const Json& entry) {
    return entry.at("supported").get<bool>() ? "yes"
                                             : "no: " + entry.at("reason").get<std::string>();
  };
  std::vector<std::pair<std::string, std::string>> pairs{
      {"calibration", reason(consumers.at("calibration"))}};
  for (const Json& format : consumers.at("formats")) {
    std::string text = reason(format);
    std::string strategies;
    for (const Json& strategy : format.at("strategies"))
      strategies += (strategies.empty() ? "" : ", ") + strategy.get<std::string>();
    if (!strategies.empty()) text += ", strategy " + strategies;
    for (const Json& note : format.at("notes")) text += "; " + note.get<std::string>();
    pairs.emplace_back("format " + format.at("format").get<std::string>(), text);
  }
  for (const Json& engine : consumers.at("engines"))
    pairs.emplace_back(engine.at("engine").get<std::string>() + " " +
                           engine.at("version").get<std::string>() + ", " +
                           engine.at("format").get<std::string>(),
                       engine_text(engine));
  print_pairs("supported by", pairs);
}

void print_layers(const Json& report) {
  std::cout << '\n';
  const Json& layers = report.at("layers");
  const bool has_queries = std::any_of(layers.begin(), layers.end(), [](const Json& row) {
    return find_field(row, "q_scale") != nullptr;
  });
  std::vector<std::string> headings{"layer",  "dtype",  "size",      "k_scale",  "v_scale",
                                    "k_amax", "v_amax", "k_clipped", "v_clipped"};
  const auto after_v_scale = [](auto& cells) { return cells.begin() + 5; };
  if (has_queries) headings.insert(after_v_scale(headings), "q_scale");
  Table table(headings);
  for (const Json& row : layers) {
    const auto clipped = [&](const char* key) {
      const Json* value = find_field(row, key);
      return value && value->is_number() ? percent(value->get<double>()) : std::string("-");
    };
    std::vector<std::string> cells{std::to_string(row.at("layer").get<int64_t>()),
                                   cell(row, "dtype"),
                                   byte_text(row.at("bytes").get<double>()),
                                   cell(row, "k_scale"),
                                   cell(row, "v_scale"),
                                   cell(row, "k_amax"),
                                   cell(row, "v_amax"),
                                   clipped("k_saturated"),
                                   clipped("v_saturated")};
    if (has_queries) cells.insert(after_v_scale(cells), cell(row, "q_scale"));
    table.add(cells);
  }
  table.print(std::cout);
}

void print_tensors(const std::vector<ListedTensor>& tensors) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const ListedTensor& entry : tensors) {
    std::ostringstream text;
    text << entry.tensor->dtype << ' ' << entry.tensor->shape << ' ' << entry.role;
    pairs.emplace_back(entry.name, text.str());
  }
  print_pairs("all tensors", pairs);
}

Json tensor_json(const ListedTensor& entry) {
  return {{"name", entry.name},
          {"role", entry.role},
          {"kind", entry.kind},
          {"dtype", name_of(entry.tensor->dtype)},
          {"shape", entry.tensor->shape.dims}};
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

void print_report(const Json& report, const std::vector<Fact>& facts) {
  std::cout << report.at("path").get<std::string>() << ": "
            << report.at("model_type").get<std::string>() << ", "
            << report.at("parameters").get<uint64_t>() << " parameters, "
            << byte_text(report.at("bytes").get<double>())
            << ", KV scales: " << report.at("kv_scales").get<std::string>() << '\n';
  print_architecture(facts);
  print_sizes(report);
  print_consumers(report.at("supported_by"));
  print_layers(report);
}

void run_inspect(const InspectOptions& options) {
  if (!options.html.empty()) check_new_file(options.html, options.overwrite);
  const ModelDir model_dir(options.checkpoint);
  if (!options.html.empty()) check_target(model_dir, options.html);
  const ModelConfig config = read_config(model_dir);
  const CheckpointQuantization quantization =
      read_checkpoint_quantization(model_dir, config, matches_target);
  const Weights weights =
      in_context(options.checkpoint, [&] { return Weights(model_dir, config, &quantization); });
  for (const std::string& warning : quantization.warnings)
    std::cerr << "warning: " << options.checkpoint << ": " << warning << '\n';
  std::vector<Fact> facts = model_facts(config, weights);
  if (!quantization.linears.empty()) facts.push_back(quantization_fact(quantization));
  const std::vector<ListedTensor> tensors = list_tensors(model_dir, config);
  const auto kv_scales = kv_scale_names(config);
  uint64_t bytes = 0, parameters = 0;
  for (const ListedTensor& entry : tensors) {
    bytes += entry.tensor->bytes.size();
    if (!kv_scales.contains(entry.name) && !quantization.tensors.contains(entry.name))
      parameters += element_count(entry.tensor->shape);
  }
  Json report = {{"path", options.checkpoint},
                 {"model_type", config.model_type},
                 {"parameters", parameters},
                 {"bytes", bytes},
                 {"kv_scales", scale_format(model_dir, config)}};
  for (const Fact& fact : facts) report["architecture"][fact.key] = fact.value;
  report["tensors"] = tensor_kinds(tensors);
  report["kv_cache"] = cache_json(config);
  report["supported_by"] = consumers_json(model_dir, config);
  const Json manifest = find_manifest(model_dir.path());
  report["layers"] = inspect_layers(model_dir, config, quantization, manifest);
  if (!options.html.empty()) {
    const std::string page =
        inspect_page({report, manifest, facts, model_dir, config, quantization});
    write_file_atomically(options.html, page, options.overwrite);
    std::cerr << "wrote " << options.html << '\n';
  }
  if (options.json) {
    if (options.tensors)
      for (const ListedTensor& entry : tensors) report["all_tensors"].push_back(tensor_json(entry));
    std::cout << dump_json(report);
    return;
  }
  print_report(report, facts);
  if (options.tensors) print_tensors(tensors);
}

}  // namespace

void add_inspect(CLI::App& app, std::function<void()>& run) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show the architecture, who supports it, and the scales and sizes of every layer");
  command->add_option("checkpoint", options->checkpoint, "Model folder, with or without scales")
      ->required()
      ->check(is_not_empty());
  command->add_flag("--tensors", options->tensors, "List every tensor: role, dtype and shape");
  command->add_flag("--json", options->json, "Print JSON instead of tables");
  command->add_option("--html", options->html, "Also draw it all as a page, in this file")
      ->check(is_not_empty());
  command->add_flag("--overwrite", options->overwrite, "Replace the file of --html");
  command->callback([options, &run] { run = [options] { run_inspect(*options); }; });
}

}  // namespace kvcal
