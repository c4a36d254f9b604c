#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace kvcal {

/// Values of model_type in config.json.
using ModelTypes = std::vector<std::string_view>;

/// What a tensor of an attention module is for, as an engine takes it. kTaken is taken and not used
/// for the cache: zero points, the scales of queries and probabilities.
enum class ScaleSide : uint8_t { kKey, kValue, kBoth, kTaken };

/// A name that an engine's loader knows, below the attention module.
struct NameRule {
  std::string_view suffix;  ///< ".k_scale"
  ScaleSide side;
  /// Known only where the module is called self_attn or mixer.
  bool needs_plain_module = false;
};

/// The value that an engine uses for a scale that the checkpoint lacks.
enum class Absent : uint8_t {
  kOneApart,      ///< 1.0 for that side alone
  kDuplicateKey,  ///< both: 1.0; V alone: K's; K alone: the loader stops
  kOneForBoth,    ///< 1.0 for both, unless both are there
  kUndefined,     ///< what its memory held before
};

/// The fate of a tensor whose name the loader does not know.
enum class Unknown : uint8_t { kRefused, kDroppedWithWarning, kDroppedSilently };

/// The part of a checkpoint that makes the cache FP8 where the user chose no dtype.
enum class CacheSwitch : uint8_t {
  kNever,
  kScheme,          ///< a kv_cache_scheme that is not null
  kAcceptedScheme,  ///< one that passes the row's checks
  kSchemeOnCuda,    ///< one of type float with 8 bits, and not on ROCm
  kModelOptCache,   ///< kv_cache_scheme or kv_cache_quant_algo of ModelOpt
  kCacheQuantAlgo,  ///< kv_cache_quant_algo of the configuration
};

/// When an engine reads ModelOpt's hf_quant_config.json.
enum class QuantFile : uint8_t {
  kNotRead,
  kWithoutConfig,  ///< where config.json has no quantization_config
  kFirst,          ///< wherever it is, whatever config.json says
};

/// A key of kv_cache_scheme and the values that the engine takes, as JSON texts.
struct SchemeCheck {
  std::string_view key;
  std::vector<std::string_view> accepted;
  bool may_lack = false;
};

/// How an engine reads the checkpoints of one quant_method.
struct MethodRules {
  /// As config.json names it; "" where there is none; one that ends in '*' stands for all that
  /// begin so, "*" for all others.
  std::string_view method = {};
  CacheSwitch cache = CacheSwitch::kNever;
  std::string_view fp8_name = "fp8";  ///< the engine's word for the cache it chooses itself
  std::vector<NameRule> names = {};
  Absent absent = Absent::kOneApart;
  bool warns_of_ones = false;  ///< whether the engine says that it uses 1.0
  std::vector<SchemeCheck> scheme = {};
  bool refuses_other_schemes = false;  ///< else it does not read their scales
  bool takes_heads = false;            ///< scales of heads, where the strategy is attn_head
  bool takes_any_shape = false;        ///< else one element, in any number of dimensions
  bool doubles_on_rocm = false;
  bool rounds_shared_scale = false;  ///< of kv_scale, to float16
  bool rounds_to_model = false;      ///< every scale, to the model's dtype
  bool dialect_by_config = false;    ///< doubles or halves after kv_cache_torch_dtype
  bool ones_for_16_bits = false;     ///< holds 1.0 where the cache is not FP8
  bool zero_is_absent = false;       ///< 0 and less count as not there; else less than 0 does
  bool ones_for_fp8 = false;         ///< loads scales, and uses 1.0 for FP8 caches
  bool needs_algorithm = false;      ///< refuses a configuration without quant_algo
  bool needs_scheme = false;      ///< refuses to find neither a kv_cache_scheme nor config_groups
  bool takes_dynamic = false;     ///< computes scales as it runs where the scheme is dynamic
  bool takes_e5m2 = true;         ///< with scales in the checkpoint
  std::string_view refusal = {};  ///< why it refuses the checkpoint whatever its scales
};

/// How an engine reads kv_cache_scales.json.
struct ScalesFileRules {
  bool is_read = false;
  std::string_view argument = {};
  bool doubles_on_rocm = false;
  ModelTypes model_types = {};  ///< of models that take it; empty: all
  /// Cannot be given where the checkpoint's configuration made parameters of the scales.
  bool conflicts_with_parameters = false;
};

/// Whether an engine uses the KV scales of a checkpoint in one of our formats, as far as it was
/// tried or read in its source. kNotKnown is no guess either way.
enum class Reads : uint8_t { kYes, kNo, kNotKnown };
std::string_view name_of(Reads reads);

/// The consequence for a model whose scales an engine does not use. kByRules: the one that follows
/// from MethodRules.
enum class MissEffect : uint8_t { kOnes, kRefused, kRefusedWithoutGroups, kByRules };

/// A model_type whose scales an engine does not use; "*" stands for all others.
struct Miss {
  std::string_view model_type, why;
  MissEffect effect = MissEffect::kOnes;
};

/// The model types that one engine reads and misses in one of our formats.
struct EngineFormat {
  std::string_view version, format;
  ModelTypes reads = {};  ///< whose scales it uses
  std::vector<Miss> misses = {};
  std::string_view note = {};  ///< what it needs, where it does not miss the model

  bool reads_type(std::string_view model_type) const;
  /// The entry for model_type, or "*" unless it reads that type; nullptr where there is none.
  const Miss* miss(std::string_view model_type) const;
};

/// Rules by which one version of an engine loads a checkpoint's KV scales.
struct EngineRules {
  std::string_view title, version;
  std::string_view source = {};  ///< the files that the rules were read from
  Unknown unknown = Unknown::kDroppedSilently;
  /// A tensor whose name is known, of a module that holds no such scale.
  Unknown unplaced = Unknown::kDroppedSilently;
  bool takes_sharded_heads = false;
  std::string_view fp8_argument = {};  ///< what makes the cache FP8 by hand
  std::string_view format = {};        ///< of ours that it reads best, for remedies
  QuantFile quant_file = QuantFile::kNotRead;
  std::vector<MethodRules> methods = {};  ///< the first that matches; none: `otherwise`
  MethodRules otherwise = {};             ///< of any other quant_method
  ScalesFileRules scales_file = {};
  std::vector<EngineFormat> formats = {};  ///< what is known of ours
};

/// By the name that --engine takes. Each engine's rules are a file of engines/.
const Registry<EngineRules>& engine_rules();

/// The row for a quant_method.
const MethodRules& rules_for(const EngineRules& engine, std::string_view method);

/// The verdict on one engine, one format and one model.
struct EngineVerdict {
  std::string_view engine, version, format;
  Reads reads = Reads::kNotKnown;
  std::string_view note;
};

/// For every format of every engine; model_type: that of config.json, of a multimodal checkpoint
/// the outer one.
std::vector<EngineVerdict> engine_verdicts(std::string_view model_type);

}  // namespace kvcal
