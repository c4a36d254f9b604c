#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>

#include "family/config_reader.h"
#include "family/wrapper.h"
#include "synth/synthetic.h"

namespace kvcal {
namespace {

// Keys of config.json with one entry per layer, and with numbers of layers.
constexpr std::array<std::string_view, 9> kListsByLayer{"activation_sparsity_pattern",
                                                        "hybrid_override_pattern",
                                                        "intermediate_size",
                                                        "layer_rope_theta",
                                                        "layer_types",
                                                        "layers_block_type",
                                                        "mlp_layer_types",
                                                        "no_rope_layers",
                                                        "num_attention_heads_per_layer"};
constexpr std::array<std::string_view, 3> kListsOfLayers{"attn_layer_indices", "mlp_only_layers",
                                                         "moe_layers"};
// Keys of quantized weights and caches.
constexpr std::array<std::string_view, 3> kQuantizationKeys{
    "compression_config", "kv_cache_torch_dtype", "quantization_config"};

Json* mutable_field(Json& object, std::string_view key) {
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

/// The object that describes the text model.
Json& text_of(Json& config, const FamilyChoice& family) {
  return text_model_of(config, family).config == &config ? config : config.at("text_config");
}

/// GPT-Neo's [[words, times], ..], as one entry for each of the first layers.
void cut_attention_types(Json& text, size_t count) {
  const Json* list = find_field(text, "attention_types");
  if (!list || !list->is_array()) return;
  Json kept = Json::array();
  for (const Json& entry : *list)
    for (int64_t i = 0; i < entry.at(1).get<int64_t>(); ++i)
      for (const Json& word : entry.at(0))
        if (kept.size() < count) kept.push_back(Json::array({Json::array({word}), 1}));
  text["attention_types"] = kept;
}

void cut_layers(Json& text, const Architecture& architecture, int64_t num_layers) {
  const auto count = static_cast<size_t>(num_layers);
  for (const std::string_view key : kListsByLayer) {
    Json* list = mutable_field(text, key);
    if (!list) continue;
    if (list->is_string()) *list = list->get<std::string>().substr(0, count);
    if (list->is_array() && list->size() > count)
      list->erase(list->begin() + static_cast<std::ptrdiff_t>(count), list->end());
  }
  for (const std::string_view key : kListsOfLayers) {
    Json* list = mutable_field(text, key);
    if (!list || !list->is_array()) continue;
    Json kept = Json::array();
    for (const Json& layer : *list)
      if (layer.is_number_integer() && layer.get<int64_t>() < num_layers) kept.push_back(layer);
    *list = kept;
  }
  cut_attention_types(text, count);
  if (Json* overrides = mutable_field(text, "per_layer_config");
      overrides && overrides->is_object())
    for (auto it = overrides->begin(); it != overrides->end();)
      it = std::strtoll(it.key().c_str(), nullptr, 10) < num_layers ? std::next(it)
                                                                    : overrides->erase(it);
  const ConfigReader reader(text, architecture);
  // The last layers read earlier caches; those that are left stay readers.
  if (const auto shared = reader.integer("num_kv_shared_layers");
      shared && architecture.shares_caches)
    text["num_kv_shared_layers"] =
        std::max<int64_t>(0, *shared - (*reader.integer("num_hidden_layers") - num_layers));
  text[std::string(reader.name_of("num_hidden_layers"))] = num_layers;
}

std::string dtype_word(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

/// Sets the dtype under the names that exist.
void set_dtype(Json& config, Json& text, DType dtype) {
  bool is_set = false;
  for (Json* object : {&config, &text})
    for (const std::string_view key : {"dtype", "torch_dtype"})
      if (Json* found = mutable_field(*object, key)) {
        *found = dtype_word(dtype);
        is_set = true;
      }
  if (!is_set) config["torch_dtype"] = dtype_word(dtype);
}

}  // namespace

DType weight_dtype(const ModelConfig& config) {
  return config.dtype == "float32"   ? DType::kF32
         : config.dtype == "float16" ? DType::kF16
                                     : DType::kBF16;
}

Json synthetic_config(const Json& config, const SyntheticOptions& options) {
  Json result = config;
  for (const std::string_view key : kQuantizationKeys) {
    result.erase(std::string(key));
    if (Json* text = mutable_field(result, "text_config"); text && text->is_object())
      text->erase(std::string(key));
  }
  const ModelConfig parsed = parse_model_config(result, options.family);
  Json& text = text_of(result, options.family);
  if (options.num_layers) {
    if (*options.num_layers < 1 || *options.num_layers > parsed.num_hidden_layers)
      fail("has ", parsed.num_hidden_layers, " layers, ", *options.num_layers,
           " were asked for; expected 1 to ", parsed.num_hidden_layers);
    cut_layers(text, *parsed.architecture, *options.num_layers);
    in_context("the first " + std::to_string(*options.num_layers) + " of " +
                   std::to_string(parsed.num_hidden_layers) + " layers",
               [&] { parse_model_config(result, options.family); });
  }
  set_dtype(result, text, options.dtype.value_or(weight_dtype(parsed)));
  return result;
}

}  // namespace kvcal
