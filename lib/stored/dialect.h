#pragma once

#include <optional>
#include <string_view>

#include "checkpoint/model_dir.h"
#include "quant/fp8.h"
#include "quant/kv_dtype.h"

namespace kvcal {

/// Key of config.json: the FP8 format of the cache that KV scales are for. Source:
/// text-generation-inference, branch fp8_kvcache, `Weights.get_kv_cache_scaling_factor`.
inline constexpr std::string_view kDialectKey = "kv_cache_torch_dtype";

/// The format that a config.json names; nullopt where it names none. Throws Error for a word that
/// is not known.
std::optional<fp8::Format> read_dialect(const Json& config);

/// The same of a model's config.json, whose path begins messages.
std::optional<fp8::Format> read_dialect(const ModelDir& model);

/// The cache that scales of a format are for.
KvDType cache_dtype_of(fp8::Format format);

}  // namespace kvcal
