#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "quant/fp8.h"
#include "quant/quant_args.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// KV cache that a checkpoint's config requests.
struct KvScheme {
  enum class Cache : uint8_t {
    kNotSaid,      ///< no config, or a form that may leave the choice to the engine
    kUnquantized,  ///< the form can request FP8 caches, and this config does not
    kNvfp4,        ///< NVFP4 with global scales from calibration
    kFp8,          ///< E4M3 with scales from calibration
    kOther,        ///< a request that no engine supports; see problem
  };
  Cache cache = KvScheme::Cache::kNotSaid;
  std::optional<Strategy> strategy = {};  ///< kFp8: kTensor or kAttnHead, where given
  std::string where = {};                 ///< file and key, for messages
  std::string problem = {};               ///< kOther
  /// Format of the cache for the scales, where config.json names it (dialect.h).
  std::optional<fp8::Format> dialect = {};
};

/// Reads kv_cache_scheme of compressed-tensors, ModelOpt or fp8, ModelOpt's kv_cache_quant_algo, or
/// Quark's kv_cache_group.
KvScheme read_kv_scheme(const QuantizationConfig& config);

/// Parses compressed-tensors' arguments of a cache. Throws Error where no engine supports them.
void parse_cache_args(const Json& args, KvScheme& scheme);

/// Scheme of an FP8 cache read by parse(scheme); an Error of parse becomes the problem of kOther,
/// an UnknownKey is thrown on.
template <class Parse>
KvScheme fp8_or_other(const std::string& where, const Parse& parse) {
  KvScheme scheme{.cache = KvScheme::Cache::kFp8, .where = where};
  try {
    parse(scheme);
  } catch (UnknownKey& error) {  // which no choice of a cache explains
    error.add_context(where);
    throw;
  } catch (const Error& error) {
    scheme.cache = KvScheme::Cache::kOther;
    scheme.problem = error.what();
  }
  return scheme;
}

}  // namespace kvcal
