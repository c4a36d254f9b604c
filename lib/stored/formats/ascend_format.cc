#include <algorithm>
#include <string>
#include <vector>

#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// What msModelSlim says of a tensor that is not quantized.
constexpr std::string_view kFloatWord = "FLOAT", kWeightEnding = ".weight";

bool has_cache(const Json& config) {
  const Json* type = find_field(config, kAscendCacheKey);
  return type && *type == kAscendCacheWord;
}

/// 16-bit weights alone: others are msModelSlim's own.
ModuleSchemes read_description(const QuantizationConfig& source) {
  for (const auto& [name, type] : source.json.items())
    if (name.ends_with(kWeightEnding) && type != kFloatWord)
      fail("key '", name, "' is ", type.dump(), ", whose weights are not read; expected \"",
           kFloatWord, "\"");
  return nullptr;
}

KvScheme read_description_cache(const QuantizationConfig& config) {
  const std::string where = config.where + ": " + std::string(kAscendCacheKey);
  if (!has_cache(config.json)) return {.cache = KvScheme::Cache::kUnquantized, .where = where};
  return {.cache = KvScheme::Cache::kInt8, .strategy = Strategy::kChannel, .where = where};
}

/// 16-bit weights need no description.
bool strip_description_cache(Json& config) {
  if (!config.is_object()) return false;
  config.erase(std::string(kAscendCacheKey));
  return std::ranges::any_of(config.items(), [](const auto& one) {
    return std::string_view(one.key()).ends_with(kWeightEnding) && one.value() != kFloatWord;
  });
}

}  // namespace

constexpr KvScaleNames kAscendNames[]{{.name = "ascend",
                                       .k = ".k_proj.kv_cache_scale",
                                       .v = ".v_proj.kv_cache_scale",
                                       .keys = KeyPosition::kNotSaid,
                                       .is_per_channel = true}};
/// quant_model_description.json: the kind of every tensor, and "kv_cache_type": "C8" for an INT8
/// cache. Source: vllm-ascend 182b75ea quantization/modelslim_config.py,
/// `_add_kvcache_quant_metadata`, methods/kv_c8.py `AscendC8KVCacheAttentionMethod`.
extern constinit const StoredFormat kAscendFormat{.name = "ascend",
                                                  .method = "ascend",
                                                  .config_file = kAscendDescriptionName,
                                                  .kv_names = kAscendNames,
                                                  .read_schemes = read_description,
                                                  .read_cache_scheme = read_description_cache,
                                                  .strip_cache = strip_description_cache};

}  // namespace kvcal
