#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/error.h"
#include "core/json.h"
#include "quant/quant_scheme.h"

namespace kvcal {

struct StoredFormat;

/// Name of ModelOpt's file beside config.json.
inline constexpr std::string_view kModelOptFileName = "hf_quant_config.json";

/// Name of msModelSlim's file beside config.json, which vLLM-Ascend reads; its key for the cache,
/// and the word there for INT8 with scales of channels.
inline constexpr std::string_view kAscendDescriptionName = "quant_model_description.json";
inline constexpr std::string_view kAscendCacheKey = "kv_cache_type", kAscendCacheWord = "C8";

/// ModelOpt's map of attention modules with a quantized cache, {"model.layers.1.self_attn":
/// {"quant_algo": "FP8"}}; those that it lacks keep 16 bits. Source: ModelOpt 0.48.0rc1
/// export/quant_utils.py, get_quant_config.
inline constexpr std::string_view kQuantizedCachesKey = "kv_cache_quantized_layers";
/// The version of the map's layout, which is 1.
inline constexpr std::string_view kCacheSchemaKey = "kv_cache_schema_version";

/// Quantization of a checkpoint, from config.json or the format's own file.
struct QuantizationConfig {
  const StoredFormat* format = nullptr;  ///< nullptr: no config
  Json json = {};                        ///< object with the format's keys
  bool is_nested = false;                ///< has the keys of the format's own file
  std::string where = {};                ///< file and key, for messages
  /// Receives a line for each key that is not known and changes nothing; nullptr: nobody asks.
  std::vector<std::string>* warnings = nullptr;
};

/// Reads the config; format is nullptr where there is none. Throws Error for an unsupported
/// quant_method, naming the supported ones.
QuantizationConfig read_quantization_config(const ModelDir& model_dir);

/// The format whose own file lies in folder; nullptr: none.
const StoredFormat* format_beside(const std::filesystem::path& folder);

/// did_you_mean for the words of a key, whose numbers must be the same: nvfp8 is not nvfp4.
std::string near_word(std::string_view word, std::span<const std::string_view> known);

/// An unknown key that may change what the config means.
class UnknownKey : public Error {
 public:
  using Error::Error;
};

/// Checks the keys of the config itself. A key that the format does not have is
/// - nothing, where its value is null or empty, for then it says nothing;
/// - an UnknownKey, where it resembles one of known, or is another format's list of modules;
/// - else a line of config.warnings: formats grow keys that name their writer, or set its kernels.
/// Source: vLLM 0.32 and transformers 5.17, which read the keys that they know.
void check_keys(const QuantizationConfig& config, std::span<const std::string_view> known);

/// Checks the keys of an object that describes codes, such as compressed-tensors' arguments. Throws
/// UnknownKey for one that is not among known and says something.
void check_keys(const Json& object, std::span<const std::string_view> known);

/// Parses [rows, columns] of blocks, or "128x128" as compressed-tensors writes it. key: for
/// messages.
std::pair<int64_t, int64_t> parse_block(std::string_view key, const Json* block);

/// Parses compressed-tensors' arguments of weights: type, bits, symmetry, group_size, scale_dtype
/// and the strategy, by compressed-tensors' rules. Throws Error naming the key for an unknown key
/// or value.
QuantArgs parse_args(const Json& args);

/// Parses compressed-tensors' arguments of weights, inputs or a cache. Returns the strategy by
/// compressed-tensors' rules. Throws Error naming the key for anything but symmetric FP8, and for
/// an unknown key.
Strategy parse_fp8_args(const Json& args);

/// Columns that share a scale; 0 for -1, which is one group. Throws Error for another number
/// below 1.
int64_t positive_group(const Json& config, std::string_view key);

/// Whether a word of a config, "e4m3", "float8_e4m3fn", "fp8_e4m3" or "torch.float8_e4m3fn", means
/// E4M3FN.
bool means_e4m3fn(std::string_view word);

/// Value of the key "dynamic". Throws Error where it is neither true nor false.
bool is_dynamic(const Json& args);

/// object[key], a list of strings; empty where the key is absent.
std::vector<std::string> strings_of(const Json& object, std::string_view key);

/// member that is an object. Throws Error for another kind.
const Json* object_member(const Json& object, std::string_view key);

}  // namespace kvcal
