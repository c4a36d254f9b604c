#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/model_dir.h"

namespace kvcal {

struct StoredForm;

/// Name of ModelOpt's file beside config.json.
inline constexpr std::string_view kModelOptFileName = "hf_quant_config.json";

/// ModelOpt's map of attention modules with a quantized cache, {"model.layers.1.self_attn":
/// {"quant_algo": "FP8"}}; those that it lacks keep 16 bits. Source: ModelOpt 0.48.0rc1
/// export/quant_utils.py, get_quant_config.
inline constexpr std::string_view kQuantizedCachesKey = "kv_cache_quantized_layers";
/// The version of the map's layout, which is 1.
inline constexpr std::string_view kCacheSchemaKey = "kv_cache_schema_version";

/// Quantization of a checkpoint, from config.json or the form's own file.
struct QuantizationConfig {
  const StoredForm* form = nullptr;  ///< nullptr: no config
  Json json = {};                    ///< object with the form's keys
  bool is_nested = false;            ///< has the keys of the form's own file
  std::string where = {};            ///< file and key, for messages
};

/// Reads the config; form is nullptr where there is none. Throws Error for an unsupported
/// quant_method, naming the supported ones.
QuantizationConfig read_quantization_config(const ModelDir& model_dir);

/// The form whose own file lies in folder; nullptr: none.
const StoredForm* form_beside(const std::filesystem::path& folder);

/// Throws Error naming a key of object that is not among known.
void check_keys(const Json& object, std::span<const std::string_view> known);

/// For forms without a schema: throws Error where an unknown key resembles a known one.
void check_spelling(const Json& object, std::span<const std::string_view> known);

}  // namespace kvcal
