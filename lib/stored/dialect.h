#pragma once

#include <optional>
#include <string_view>

#include "checkpoint/model_dir.h"
#include "quant/fp8.h"
#include "quant/kv_dtype.h"

namespace kvcal {

/// Key of config.json that names the FP8 format of the cache for which the KV scales are made.
/// Source: text-generation-inference, branch fp8_kvcache, `Weights.get_kv_cache_scaling_factor`.
inline constexpr std::string_view kDialectKey = "kv_cache_torch_dtype";

/// The format that a config.json names; nullopt where the key is absent. Throws Error for an
/// unknown word.
std::optional<fp8::Format> read_dialect(const Json& config);

/// The format that a model's config.json names; error messages begin with its path.
std::optional<fp8::Format> read_dialect(const ModelDir& model);

/// Dtype of the cache for scales of this format.
KvDType cache_dtype_of(fp8::Format format);

}  // namespace kvcal
