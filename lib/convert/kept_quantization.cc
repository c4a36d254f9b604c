#include "convert/kept_quantization.h"

#include <algorithm>

#include "convert/json_member.h"
#include "core/folder.h"
#include "core/json_limits.h"
#include "export/joined_writer.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

bool has_elements(const Json* value) {
  return value && !value->empty();
}

/// Whether a group does something: to weights, or to the inputs of attention.
bool has_groups(const Json& config) {
  const Json* groups = member(config, "config_groups");
  return groups && std::ranges::any_of(*groups, [](const Json& group) {
           return has_elements(member(group, "targets")) &&
                  (member(group, "weights") || member(group, "input_activations"));
         });
}

/// Whether ModelOpt's config does something to weights. key: of the modules that it excepts.
bool has_algorithm(const Json& config, std::string_view key) {
  const Json* excluded = member(config, key);
  return member(config, "quant_algo") && !(excluded && *excluded == Json::array({"*"}));
}

void remove_keys(Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) object.erase(key);
}

/// false: nothing is left that is done to weights.
bool strip_modelopt(Json& config) {
  if (config.is_null()) return false;
  if (const auto nested = config.find("quantization"); nested != config.end()) {
    if (!nested->is_object()) return false;
    if (nested->contains("kv_cache_quant_algo")) (*nested)["kv_cache_quant_algo"] = nullptr;
    return has_algorithm(*nested, "exclude_modules");
  }
  remove_keys(config, {"kv_cache_scheme", "kv_cache_quant_algo"});
  return has_algorithm(config, "ignore");
}

/// Outputs of the Linears of K and V; an entry that says nothing else goes.
bool strip_quark(Json& config) {
  if (const auto exported = config.find("export");
      exported != config.end() && exported->is_object())
    (*exported)["kv_cache_group"] = Json::array();
  const Json global = config.value("global_quant_config", Json());
  bool has_weights = member(global, "weight") != nullptr;
  const auto layers = config.find("layer_quant_config");
  if (layers == config.end() || !layers->is_object()) return has_weights;
  for (auto layer = layers->begin(); layer != layers->end();) {
    if (layer->is_object() && layer->contains("output_tensors"))
      (*layer)["output_tensors"] = nullptr;
    has_weights = has_weights || member(*layer, "weight") != nullptr;
    layer = *layer == global ? layers->erase(layer) : std::next(layer);
  }
  return has_weights;
}

/// false: weights have 16 bits.
bool strip(KeptQuantization& kept) {
  if (kept.format == "compressed-tensors") {
    if (kept.config.contains("kv_cache_scheme")) kept.config["kv_cache_scheme"] = nullptr;
    return does_something(kept.config);
  }
  if (kept.format == "modelopt") {
    const bool in_config = strip_modelopt(kept.config),
               in_file = strip_modelopt(kept.modelopt_file);
    return in_config || in_file;
  }
  if (kept.format == "quark") return strip_quark(kept.config);
  if (kept.format == "fp8") remove_keys(kept.config, {"kv_cache_scheme"});
  return true;
}

}  // namespace

bool keeps_weights(const KeptQuantization& kept, std::string_view format) {
  return std::ranges::all_of(joined_names(format), [&](const std::string& name) {
    return takes_any_weights(name) || name == kept.format;
  });
}

bool does_something(const Json& compressed_tensors) {
  return has_groups(compressed_tensors) ||
         has_elements(member(compressed_tensors, "sparsity_config")) ||
         has_elements(member(compressed_tensors, "transform_config"));
}

bool erase_attention_groups(Json& compressed_tensors) {
  const auto groups = compressed_tensors.find("config_groups");
  if (groups == compressed_tensors.end() || !groups->is_object()) return false;
  const size_t before = groups->size();
  for (auto group = groups->begin(); group != groups->end();)
    group = member(*group, "input_activations") && !member(*group, "weights") ? groups->erase(group)
                                                                              : std::next(group);
  return groups->size() != before;
}

std::optional<KeptQuantization> read_kept_quantization(const ModelDir& model) {
  KeptQuantization kept;
  for (const char* key : {"quantization_config", "compression_config"})
    if (const Json* config = member(model.config(), key); config && kept.config.is_null())
      kept.config = *config;
  const fs::path file = model.path() / kModelOptFileName;
  if (is_there(file))
    kept.modelopt_file = in_context(file.string(), [&] {
      Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
      if (!json.is_object()) fail("is ", kind_of(json), ", expected an object");
      return json;
    });
  if (kept.config.is_null() && kept.modelopt_file.is_null()) return std::nullopt;
  kept.format = in_context((model.path() / "config.json").string() + ": quantization_config", [&] {
    if (kept.config.is_null()) return std::string("modelopt");
    if (!kept.config.is_object()) fail("found ", kind_of(kept.config), ", expected an object");
    return required_string(kept.config, "quant_method");
  });
  if (kept.format.starts_with("modelopt")) kept.format = "modelopt";
  if (!strip(kept)) return std::nullopt;
  return kept;
}

std::optional<KeptQuantization> kept_weights(const ModelDir& model, const ModelConfig& config) {
  return config.weight_block_rows == 0 ? std::nullopt : read_kept_quantization(model);
}

}  // namespace kvcal
