#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "engines/engine_answers.h"
#include "engines/key_checks.h"
#include "family/model_config.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {

/// The part of a cache that an engine uses a tensor of an attention module for. kTaken is taken and
/// not used for the cache: zero points, the scales of queries and probabilities.
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
  kDuplicateKey,  ///< both: 1.0; V alone: K's; K alone: the loader stops. Less than 0 is absent
  kDuplicateKeyOfZero,  ///< the same, where 0 is absent, too
  kOneForBoth,          ///< 1.0 for both, unless both are there
  kUndefined,           ///< what its memory held before
  kUndescribed,  ///< 16 bits, unless a file describes K's scale; then 1.0 for that side alone
};

/// The outcome of a tensor whose name the loader does not know.
enum class Unknown : uint8_t { kRefused, kDroppedWithWarning, kDroppedSilently };

/// The part of a checkpoint that makes the cache FP8 where the user chose no dtype.
enum class CacheSwitch : uint8_t {
  kNever,
  kScheme,          ///< a kv_cache_scheme that is not null
  kAcceptedScheme,  ///< one that passes the row's checks
  kSchemeOnCuda,    ///< one of type float with 8 bits, and not on ROCm
  kModelOptCache,   ///< kv_cache_scheme or kv_cache_quant_algo of ModelOpt
  /// kv_cache_quant_algo of a nested configuration of ModelOpt; of a flat one a kv_cache_scheme of
  /// floats of 8 bits, dynamic or not, else kv_cache_quant_algo
  kModelOptLayout,
  kCacheQuantAlgo,  ///< kv_cache_quant_algo of the configuration
};

/// When an engine reads ModelOpt's hf_quant_config.json.
enum class QuantFile : uint8_t {
  kNotRead,
  kWithoutConfig,  ///< where config.json has no quantization_config
  kFirst,          ///< wherever it is, whatever config.json says
};

/// Shapes that an engine takes for a scale.
enum class ScaleShapes : uint8_t {
  kElements,  ///< one element, or one a head, in any number of dimensions
  kExact,     ///< [1], or [heads, 1, 1]
  kAny,       ///< all; its forward pass stops where they do not fit
  kChannels,  ///< one a channel of a head
};

/// What an engine makes of a scale a head, where the strategy is attn_head.
enum class HeadScales : uint8_t {
  kNotTaken,
  kTaken,
  kCut,  ///< takes the first of more scales than heads, and counts heads once for all layers
};

/// How an engine rounds a scale.
enum class Rounding : uint8_t { kNone, kSharedToFloat16, kToModel };

/// What an engine makes of a scale on a platform that stores E4M3 as FNUZ.
enum class FnuzRule : uint8_t {
  kKept,
  kDoubledOnRocm,
  kByConfig,  ///< doubles or halves after kv_cache_torch_dtype of config.json
};

/// Caches for which an engine holds 1.0, whatever the checkpoint has.
enum class OnesFor : uint8_t { kNone, kSixteenBits, kFp8 };

/// How an engine finds a Linear in a configuration's list of what is not quantized.
enum class PartNames : uint8_t {
  kNotAsked,     ///< it fuses no Linears, or does not compare their parts
  kNames,        ///< equal names
  kExpressions,  ///< equal names, or "re:" and an expression
  kEnds,         ///< the same, or ends of names, behind a dot
  kPaths,        ///< parts between dots
};

/// What an engine makes of a fused Linear of which some parts are quantized and others are not: it
/// refuses it, as far as it compares them.
struct FusedParts {
  PartNames names = PartNames::kNotAsked;
  /// It compares the parts that the model's class names, and takes those of others for quantized.
  bool by_model = true;
  /// Parts that it compares in every model, whatever the class names.
  std::vector<std::string_view> compared = {};
  bool prefers_whole = false;     ///< an entry that names the whole counts before its parts
  bool compares_experts = false;  ///< the Linears of the first expert
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
  bool warns_of_ones = false;         ///< whether the engine says that it uses 1.0
  std::vector<KeyCheck> config = {};  ///< of its configuration; it refuses others
  std::vector<KeyCheck> scheme = {};
  std::vector<std::string_view> scheme_keys = {};  ///< it refuses others; empty: it takes any
  bool refuses_other_schemes = false;              ///< else it does not read their scales
  HeadScales heads = HeadScales::kNotTaken;
  ScaleShapes shapes = ScaleShapes::kElements;
  Rounding rounding = Rounding::kNone;
  FnuzRule dialect = FnuzRule::kKept;
  OnesFor ones = OnesFor::kNone;
  FusedParts parts = {};
  bool needs_algorithm = false;     ///< refuses a configuration without quant_algo
  bool needs_cache_config = false;  ///< places exist only where it configures the cache
  bool needs_scheme = false;        ///< refuses to find neither a kv_cache_scheme nor config_groups
  bool needs_targets = false;       ///< refuses Linears that neither ignore nor config_groups name
  bool packs_experts_alone = false;     ///< refuses packed weights of other Linears
  bool refuses_packed_experts = false;  ///< packed integers of experts
  bool needs_linear_groups = false;     ///< to it groups of attention alone are none
  bool takes_nvfp4 = false;        ///< makes NVFP4 caches with the scales where ModelOpt says so
  bool takes_int8 = false;         ///< makes INT8 caches with the scales where ModelOpt says so
  bool takes_dynamic = false;      ///< computes scales as it runs where the scheme is dynamic
  bool takes_e5m2 = true;          ///< with scales in the checkpoint
  bool groups_by_pattern = false;  ///< Quark's kv_cache_group has patterns of names, else names
  std::string_view refusal = {};   ///< why it refuses the checkpoint whatever its scales
};

/// How an engine reads kv_cache_scales.json, or a file of scales of its own form.
struct ScalesFileRules {
  bool is_read = false;
  std::string_view argument = {};
  bool doubles_on_rocm = false;
  /// Of models that take it, where that is not among the recorded answers.
  std::vector<std::string_view> model_types = {};
  /// Cannot be given where the checkpoint's configuration made parameters of the scales.
  bool conflicts_with_parameters = false;
  std::string_view name = kScalesJsonName;  ///< of the file in a folder
  /// What tells it the kind of cache of a file of its own form; nullptr: nothing does.
  std::string (*kind_argument)(bool is_int8, size_t scales_of_layer) = nullptr;
  /// Of a file of its own form, whatever the model: throws Error for one that the engine refuses.
  ScalesBeside (*read)(const std::filesystem::path& path, const ModelConfig& config) = nullptr;
};

/// Whether an engine uses the KV scales of a checkpoint in one of our formats, as far as it was
/// tried or read in its source. kNotKnown is no guess either way.
enum class Reads : uint8_t { kYes, kNo, kNotKnown };

/// Endings of tensors' names: scales of the cache in the attention module itself.
inline const std::vector<std::string_view> kPlainScales{".k_scale", ".v_scale"};

/// An engine and one of our formats, for tables.
struct EngineFormat {
  std::string_view format;
  std::string_view method = {};              ///< quant_method of its checkpoints
  std::vector<std::string_view> names = {};  ///< its tensors' names end so
  Reads otherwise = Reads::kYes;             ///< for tried models that are not missed
  std::string_view note = {};                ///< what it needs, or why it reads none
  bool is_scales_file = false;               ///< read as ScalesFileRules say
  bool is_of_int8 = false;  ///< of INT8 and NVFP4 caches, of which tables do not tell
};

/// A value of ModelOpt's quant_algo and the quant_method that it stands for.
struct AlgorithmRule {
  std::string_view algorithm, method;
};

/// How an engine finds the configuration of a quantization, and its quant_method.
struct ConfigReading {
  QuantFile quant_file = QuantFile::kNotRead;
  std::string_view file_name = kModelOptFileName, file_method = "modelopt";  ///< of that file
  bool needs_method = false;             ///< refuses a quantization_config without quant_method
  bool method_has_case = false;          ///< COMPRESSED-TENSORS is another method
  bool reads_compression_config = true;  ///< the old key of compressed-tensors
  bool refuses_auto_type = false;        ///< refuses torch_dtype "auto" in config.json
  bool refuses_null_config = false;      ///< refuses a quantization_config of null
  /// A kv_cache_scheme that Python takes for false ({}, [], false, 0) counts as not there.
  bool false_scheme_is_none = false;
  std::vector<KeyCheck> config = {};  ///< of quantization_config, whatever its quant_method
  std::vector<KeyCheck> file = {};    ///< of hf_quant_config.json
  std::vector<KeyCheck> model = {};   ///< of config.json, of models of texts alone
  /// Reads the object "quantization" below a quantization_config of config.json, too.
  bool reads_nested = true;
  bool reads_text_config = true;  ///< a quantization_config in text_config
  /// hf_quant_config.json without quant_method is ModelOpt's where producer.name says so; else all.
  bool needs_producer = false;
  /// The quant_methods of ModelOpt's configurations without one; empty: "modelopt" for all.
  std::vector<AlgorithmRule> algorithms = {};
  bool algorithm_has_case = false;          ///< "Fp8" is another quant_algo than "FP8"
  bool refuses_other_algorithms = false;    ///< else they have no quant_method
  std::vector<AlgorithmRule> aliases = {};  ///< of quant_methods
  /// quant_methods that it knows beside those with rows; empty: it takes any.
  std::vector<std::string_view> other_methods = {};
};

/// The safetensors files of a folder that an engine takes.
enum class ShardSelection : uint8_t {
  kAll,
  kIndexed,          ///< of all, those that the index names, where there is one
  kSingleOrIndexed,  ///< model.safetensors, else the index's
};

/// How an engine chooses among the safetensors files of a folder.
struct FileRules {
  ShardSelection selection = ShardSelection::kIndexed;
  bool refuses_repeats = false;   ///< of a tensor's name in two files
  bool counts_digits = false;     ///< reads model-9 before model-10, and the last one holds
  std::string_view prefers = {};  ///< files that begin so, where there are any, and no other
  std::vector<std::string_view> leaves_out = {};  ///< files with these words in their names
};

/// The dtype in which an engine runs a model, for scales that it rounds to it.
struct RunDtype {
  bool takes_float32 = true;                          ///< else bfloat16 stands for it
  std::vector<std::string_view> refuse_float16 = {};  ///< model types; bfloat16 stands for it
  bool refuses_float64 = false;                       ///< with a quantization
  bool refuses_other_half = false;  ///< a cache of float16 or bfloat16, where the model has another
  bool widest =
      false;  ///< where config.json names none: the widest of all tensors, else the first's
};

/// Rules by which one version of an engine loads a checkpoint's KV scales.
struct EngineRules {
  std::string_view title;
  /// All: those that were run, the newest first, which is meant by default, then those that were
  /// not. Files of engines/ have the latter, engine_rules() adds the others.
  std::vector<std::string_view> versions = {};
  std::string_view source = {};  ///< the files that the rules were read from
  ConfigReading reading = {};
  FileRules files = {};
  RunDtype run_dtype = {};
  Unknown unknown = Unknown::kDroppedSilently;
  /// A tensor whose name is known, of a module that holds no such scale.
  Unknown unplaced = Unknown::kDroppedSilently;
  bool takes_sharded_heads = false;
  /// Types of text models of which it refuses a sliding window in some layers and not in others.
  std::vector<std::string_view> one_window_types = {};
  std::string_view command = {};       ///< that serves the folder named after it; empty: none
  std::string_view fp8_argument = {};  ///< what makes the cache FP8 by hand
  std::vector<std::string_view> refused_caches = {};  ///< words of --kv-cache-dtype
  /// Followed by the numbers of layers, what leaves their caches in 16 bits; empty: it stores all
  /// layers alike.
  std::string_view skip_argument = {};
  std::string_view format = {};           ///< of ours that it reads best, for remedies
  bool is_asked_by_name = false;          ///< it reads no form that others read, too
  std::vector<MethodRules> methods = {};  ///< the first that matches; none: `otherwise`
  MethodRules otherwise = {};             ///< of any other quant_method
  ScalesFileRules scales_file = {};
  std::vector<EngineFormat> formats = {};        ///< of ours
  std::vector<EngineRules> other_versions = {};  ///< the rules of each other version that was run

  std::string_view recorded = {};  ///< name of its table of answers, see seen()

  /// What its own code was seen to do; nothing of an engine that was not run.
  const EngineAnswers& seen() const;
};

/// By the name that --engine takes. Rules that an engine computes are in engines/<name>.cc, what
/// its code was seen to do in answers/<name>_<version>.json.
const Registry<EngineRules>& engine_rules();

/// Names of the engines that read checkpoints of forms that others read, too; the others read a
/// form or a file of their own alone.
std::vector<std::string> checkpoint_engines();

/// An engine of one version.
struct EngineChoice {
  std::string name;     ///< of engine_rules()
  std::string version;  ///< one of its versions
  /// The version that was asked for, where it is newer than all that were run; else empty.
  std::string newer = {};

  const EngineRules& rules() const;
  /// The day on which the version was run, as "2026-11-28"; empty: it was not.
  std::string_view run_on() const;
  /// "vLLM 0.33 (run 2026-11-28)", of an engine that was not run "TensorRT-LLM 2026-08".
  std::string title() const;
  /// That a newer version was asked for than the answer is of; empty: none was.
  std::string warning() const;
};
/// "0.33 (run 2026-11-28)"; run_on: empty for a version that was not run.
std::string dated_version(std::string_view version, std::string_view run_on);
/// "vllm", whose newest version that was run is meant, or "vllm@0.33", or its release
/// "vllm@0.33.0". A version newer than all that were run stands for the newest of them. Throws
/// Error for an engine or another version that is not known, with those that are.
EngineChoice choose_engine(std::string_view asked);
/// Every version of an engine that was run, the newest first; one that was not run has one.
std::vector<EngineChoice> versions_of(std::string_view name);

/// The engine's argument and a file: "--quantization-param-path FILE", "kv_cache_scale_file=FILE".
std::string file_argument(const ScalesFileRules& rules, const std::string& file);

/// Whether the engine takes kv_cache_scales.json for models of a type.
bool takes_scales_file(const EngineRules& engine, std::string_view model_type);

/// Whether the engine holds scales of the query's names in all layers, as far as names and the kind
/// of the checkpoint say.
bool holds_names(const EngineRules& engine, const MissQuery& query);

/// The row for a quant_method.
const MethodRules& rules_for(const EngineRules& engine, std::string_view method);

}  // namespace kvcal
