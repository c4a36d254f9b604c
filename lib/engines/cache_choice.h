#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/json.h"
#include "engines/engine_rules.h"
#include "family/model_config.h"
#include "quant/fp8.h"

namespace kvcal {

/// The part of a checkpoint's quantization config that concerns the cache.
struct CacheDeclaration {
  std::string method;           ///< quant_method; "modelopt" for hf_quant_config.json; "" for none
  Json config;                  ///< quantization_config, or hf_quant_config.json; null for none
  Json fields;                  ///< the object of config that holds quant_algo and its like
  Json scheme;                  ///< kv_cache_scheme, null where there is none
  std::string cache_algorithm;  ///< kv_cache_quant_algo of ModelOpt, "" where there is none
  std::string algorithm;        ///< quant_algo, "" where there is none
  std::string refusal;  ///< why the engine finds no quant_method; empty: it does, or needs none
  std::optional<fp8::Format> dialect;  ///< kv_cache_torch_dtype of config.json (TGI's branch)
};

/// As an engine reads it. Throws Error for an hf_quant_config.json that counts and is no JSON
/// object, and as read_dialect.
CacheDeclaration read_declaration(const ModelDir& model_dir, const ConfigReading& reading);

/// Whether it quantizes weights, as far as its method is known to say.
bool declares_weights(const CacheDeclaration& declaration);

/// Whether config_groups are missing, null or empty.
bool lacks_groups(const CacheDeclaration& declaration);

/// Whether config_groups are missing, null or empty, or of attention alone.
bool quantizes_no_linear(const CacheDeclaration& declaration);

/// Whether a group of config_groups is of K, V and queries: of activations, without weights.
bool declares_attention(const CacheDeclaration& declaration);

/// Whether neither config_groups nor ignore names the Linears: by class, or by a pattern for all.
bool lacks_targets(const CacheDeclaration& declaration);

/// Attention layers whose caches the checkpoint leaves in 16 bits: `ignore` of compressed-tensors
/// names their modules, by name or by pattern, and not those of all layers, as it does to leave out
/// Linears; or ModelOpt's kv_cache_quantized_layers lacks them. Patterns that are none are passed
/// over.
std::set<int64_t> ignored_layers(const CacheDeclaration& declaration, const ModelConfig& config);

/// The cache that an engine makes.
struct CacheChoice {
  std::string dtype = "auto";  ///< the engine's word
  bool is_fp8 = false;
  bool is_quantized = false;  ///< FP8, INT8, or NVFP4 with a scale of the same kind as FP8's
  bool reads_scales = true;   ///< false: the scheme is one whose scales it passes over
  std::string refusal;        ///< why it does not start; empty: it does
};

/// asked: what the user gives as --kv-cache-dtype, "auto" for nothing.
CacheChoice choose_cache(const MethodRules& rules, const CacheDeclaration& declaration,
                         const std::string& asked, bool is_rocm);

/// "strategy is "channel", it takes "tensor" or "attn_head"" for the first check that fails; empty
/// where all hold or there is no scheme.
std::string failed_check(const MethodRules& rules, const Json& scheme);

/// Whether a cache of that --kv-cache-dtype holds codes: FP8, INT8 or NVFP4.
bool is_quantized_cache(std::string_view dtype);

}  // namespace kvcal
