#pragma once

#include <string>

#include "core/json.h"

namespace kvcal {

/// Why an engine of vLLM's kind refuses the cache of a Quark configuration; empty: it does not. Its
/// export.kv_cache_group names entries of layer_quant_config: the outputs of K and V have to be FP8
/// E4M3 per tensor. by_pattern: the group's texts are patterns for the names of entries (vLLM),
/// else names of entries (SGLang). Source: vLLM 0.33 and SGLang 0.5.23, `QuarkConfig.from_config`,
/// `QuarkKVCacheMethod.validate_kv_cache_config`.
std::string quark_refusal(const Json& config, bool by_pattern);

}  // namespace kvcal
