#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "quant/fp8.h"
#include "quant/quant_args.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// The KV cache that a checkpoint's config asks for.
struct KvScheme {
  enum class Cache : uint8_t {
    kNotSaid,      ///< there is no config, or its form may leave this to the engine
    kUnquantized,  ///< the form names FP8 caches, and this config does not
    kFp8,          ///< E4M3 with scales from calibration
    kOther,        ///< what no engine runs from a checkpoint; problem says it
  };
  Cache cache = KvScheme::Cache::kNotSaid;
  std::optional<Strategy> strategy = {};  ///< kFp8: kTensor or kAttnHead, where the config says it
  std::string where = {};                 ///< file and key, for messages
  std::string problem = {};               ///< kOther
  /// The format of the cache that scales are for, where config.json names it (dialect.h).
  std::optional<fp8::Format> dialect = {};
};

/// From compressed-tensors' kv_cache_scheme, ModelOpt's kv_cache_scheme or kv_cache_quant_algo,
/// fp8's kv_cache_scheme, or Quark's kv_cache_group.
KvScheme read_kv_scheme(const QuantizationConfig& config);

/// compressed-tensors' arguments of a cache. Throws Error where no engine runs them.
void parse_cache_args(const Json& args, KvScheme& scheme);

/// The scheme of an FP8 cache that parse(scheme) reads; its Error becomes the problem of kOther.
template <class Parse>
KvScheme fp8_or_other(const std::string& where, const Parse& parse) {
  KvScheme scheme{.cache = KvScheme::Cache::kFp8, .where = where};
  try {
    parse(scheme);
  } catch (const Error& error) {
    scheme.cache = KvScheme::Cache::kOther;
    scheme.problem = error.what();
  }
  return scheme;
}

}  // namespace kvcal
