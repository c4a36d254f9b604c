#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quant/quant_args.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// What a checkpoint's config says of its KV cache.
struct KvScheme {
  enum class Cache : uint8_t {
    kNotSaid,      ///< there is no config, or its form may leave this to the engine
    kUnquantized,  ///< the form names FP8 caches, and this config does not
    kFp8,          ///< E4M3 with scales from calibration
    kOther,        ///< what no engine runs from a checkpoint; problem says it
  };
  Cache cache = Cache::kNotSaid;
  std::optional<Strategy> strategy = {};  ///< kFp8: kTensor or kAttnHead, where the config says it
  std::string where = {};                 ///< file and key, for messages
  std::string problem = {};               ///< kOther
};

/// From compressed-tensors' kv_cache_scheme, ModelOpt's kv_cache_scheme or kv_cache_quant_algo,
/// fp8's kv_cache_scheme, or Quark's kv_cache_group.
KvScheme read_kv_scheme(const QuantizationConfig& config);

}  // namespace kvcal
