#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/registry.h"

namespace kvcal {

/// Values of model_type in config.json.
using ModelTypes = std::vector<std::string_view>;

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

/// The values that an engine takes for a key of an object.
struct KeyCheck {
  /// "a.b": key b of the object a, "a.*": each value of it; passed over where a is none.
  std::string_view key;
  /// JSON texts, compared as Python does (8.0 is 8), or kinds (key_checks.cc): "a list", "a list of
  /// texts", "a list of patterns" ("re:" begins an expression), "an object", "group_0 alone", "a
  /// text", "true or false", "a group" of compressed-tensors (with a list of targets), "a group
  /// with weights", "a group of attention".
  std::vector<std::string_view> accepted;
  bool may_lack = false;
  bool ignores_case = false;
  std::string_view waived_by = {};  ///< not checked where this key holds an object with entries
  std::string_view only_with = {};  ///< checked only where this key does
};

/// Of compressed-tensors: columns of weights in the order of activations (weight_g_idx), which vLLM
/// 0.32 and compressed-tensors from 0.19 on refuse.
inline const KeyCheck kNoColumnOrder{.key = "config_groups.*.weights.actorder",
                                     .accepted = {"null", "false", "\"weight\"", "\"static\""},
                                     .may_lack = true};

/// Of quant_method fp8, in engines of vLLM's kind.
inline const KeyCheck kActivationScheme{
    .key = "activation_scheme", .accepted = {"\"static\"", "\"dynamic\""}, .may_lack = true};

/// Shapes that an engine takes for a scale.
enum class ScaleShapes : uint8_t {
  kElements,  ///< one element, or one a head, in any number of dimensions
  kExact,     ///< [1], or [heads, 1, 1]
  kAny,       ///< all; its forward pass stops where they do not fit
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
  bool takes_heads = false;  ///< scales of heads, where the strategy is attn_head
  /// Takes the first of more scales than heads, and counts heads once for all layers.
  bool cuts_heads = false;
  ScaleShapes shapes = ScaleShapes::kElements;
  bool doubles_on_rocm = false;
  bool rounds_shared_scale = false;  ///< of kv_scale, to float16
  bool rounds_to_model = false;      ///< every scale, to the model's dtype
  bool dialect_by_config = false;    ///< doubles or halves after kv_cache_torch_dtype
  bool ones_for_16_bits = false;     ///< holds 1.0 where the cache is not FP8
  bool zero_is_absent = false;       ///< 0 and less count as not there; else less than 0 does
  bool ones_for_fp8 = false;         ///< loads scales, and uses 1.0 for FP8 caches
  bool needs_algorithm = false;      ///< refuses a configuration without quant_algo
  bool needs_cache_config = false;   ///< places exist only where it configures the cache
  bool needs_scheme = false;   ///< refuses to find neither a kv_cache_scheme nor config_groups
  bool needs_targets = false;  ///< refuses Linears that neither ignore nor config_groups name
  bool packs_experts_alone = false;  ///< refuses packed weights of other Linears
  bool takes_nvfp4 = false;          ///< makes NVFP4 caches with the scales where ModelOpt says so
  bool takes_dynamic = false;        ///< computes scales as it runs where the scheme is dynamic
  bool takes_e5m2 = true;            ///< with scales in the checkpoint
  std::string_view refusal = {};     ///< why it refuses the checkpoint whatever its scales
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

/// The fate of a checkpoint that an engine misses. kByRules: MethodRules decide.
enum class MissEffect : uint8_t {
  kOnes,                  ///< the scales are 1.0
  kOnesWhenAsked,         ///< the cache keeps 16 bits unless FP8 is asked for, then with 1.0
  kSixteenBits,           ///< the cache keeps 16 bits, whatever is asked for
  kByRulesWhenAsked,      ///< the cache keeps 16 bits unless FP8 is asked for, then MethodRules
  kRefused,               ///< it does not start
  kNoModel,               ///< it does not start, with or without scales
  kRefusedWithoutGroups,  ///< it does not start where config_groups are empty
  kByRules,
};

/// Types of the families that tests/reference/engines_table.py runs every engine with.
inline const ModelTypes kTypesRun{"bamba",       "cohere",      "cohere2",
                                  "deepseek_v2", "deepseek_v3", "exaone",
                                  "exaone4",     "falcon",      "gemma",
                                  "gemma2",      "gemma3",      "gemma3_text",
                                  "glm",         "glm4",        "glm4_moe",
                                  "gpt2",        "gpt_neox",    "gpt_oss",
                                  "granite",     "granitemoe",  "granitemoehybrid",
                                  "internlm2",   "internlm3",   "jamba",
                                  "llama",       "ministral",   "ministral3",
                                  "mistral",     "mixtral",     "nemotron_h",
                                  "olmo2",       "olmo3",       "olmoe",
                                  "phi",         "phi3",        "phimoe",
                                  "qwen2",       "qwen2_moe",   "qwen3",
                                  "qwen3_moe",   "qwen3_next",  "smollm3",
                                  "stablelm",    "starcoder2"};

/// Types of families added later, with which it runs some of them.
inline const ModelTypes kLaterTypesRun{"afmoe",
                                       "arcee",
                                       "biogpt",
                                       "codegen",
                                       "cwm",
                                       "deepseek_v32",
                                       "dots1",
                                       "ernie4_5",
                                       "ernie4_5_moe",
                                       "exaone_moe",
                                       "flex_olmo",
                                       "glm4_moe_lite",
                                       "glm_moe_dsa",
                                       "gpt_bigcode",
                                       "gpt_neo",
                                       "gptj",
                                       "granite_swa",
                                       "granitemoe_swa",
                                       "granitemoeshared",
                                       "helium",
                                       "hy_v3",
                                       "hyperclovax",
                                       "iquestcoder",
                                       "jais2",
                                       "kimi_k2",
                                       "llama4_text",
                                       "mellum",
                                       "minicpm3",
                                       "minimax_m2",
                                       "mistral4",
                                       "nanochat",
                                       "nemotron",
                                       "olmo",
                                       "opt",
                                       "qwen3_5_text",
                                       "seed_oss",
                                       "solar_open",
                                       "vaultgemma",
                                       "xglm",
                                       "youtu"};

/// Multimodal types, and families added last, with which it runs vLLM 0.32, SGLang and
/// transformers.
inline const ModelTypes kLatestTypesRun{"apertus",
                                        "cohere2_moe",
                                        "dbrx",
                                        "falcon_h1",
                                        "flint",
                                        "fuyu",
                                        "gemma4",
                                        "gemma4_text",
                                        "glm46v",
                                        "glm4v",
                                        "glm4v_moe",
                                        "granite4_vision",
                                        "hunyuan_v1_dense",
                                        "hunyuan_v1_moe",
                                        "idefics3",
                                        "internvl",
                                        "kimi_k25",
                                        "laguna",
                                        "lfm2",
                                        "lfm2_moe",
                                        "lfm2_vl",
                                        "llama4",
                                        "llava",
                                        "llava_next",
                                        "llava_onevision",
                                        "mimo_v2_flash",
                                        "mistral3",
                                        "olmo_hybrid",
                                        "persimmon",
                                        "qwen2_5_vl",
                                        "qwen2_vl",
                                        "qwen3_5",
                                        "qwen3_5_moe",
                                        "qwen3_vl",
                                        "qwen3_vl_moe",
                                        "smolvlm"};
/// Wrappers added last, with which it runs SGLang, TGI, LMDeploy and transformers, and most engines
/// of vLLM's code.
inline const ModelTypes kWrapperTypesRun{"aria",
                                         "aria_text",
                                         "aya_vision",
                                         "blip-2",
                                         "cohere2_vision",
                                         "cohere_compass",
                                         "cohere_compass_text",
                                         "deepseek_ocr2",
                                         "deepseek_vl",
                                         "deepseek_vl_hybrid",
                                         "emu3",
                                         "exaone4_5",
                                         "fast_vlm",
                                         "gemma3n",
                                         "gemma3n_text",
                                         "gemma4_unified",
                                         "gemma4_unified_text",
                                         "glm_ocr",
                                         "glmga",
                                         "got_ocr2",
                                         "granite_docling",
                                         "hunyuan_vl",
                                         "hyperclovax_vision_v2",
                                         "idefics2",
                                         "instructblip",
                                         "instructblipvideo",
                                         "janus",
                                         "lighton_ocr",
                                         "llava_next_video",
                                         "minicpm_ocr",
                                         "minicpmv4_6",
                                         "minicpmv4_7",
                                         "mllama",
                                         "moss_transcribe_diarize",
                                         "ovis2",
                                         "paddleocr_vl",
                                         "perception_lm",
                                         "phi4_multimodal",
                                         "pp_chart2table",
                                         "qianfan_ocr",
                                         "video_llama_3",
                                         "video_llava",
                                         "vipllava"};
/// Those wrappers, without some.
ModelTypes wrappers_run_but(const ModelTypes& others);
/// types, and those wrappers without some.
ModelTypes with_wrappers_but(const ModelTypes& others, ModelTypes types);
/// All other types run, without some.
ModelTypes types_run_but(const ModelTypes& others);
/// The types among them with which it runs every engine.
ModelTypes types_run_everywhere_but(const ModelTypes& others);

/// Endings of tensors' names: scales of the cache in the attention module itself.
inline const std::vector<std::string_view> kPlainScales{".k_scale", ".v_scale"};

/// A key of config.json, or of its text_config, and the JSON text of its value, null where it lacks
/// the key; "": any but null and false.
struct Setting {
  std::string_view key;  ///< "a.b": key b of the object a
  std::string_view value = {};
  bool is_not = false;  ///< any value but that
};

/// Models whose scales an engine does not use, and the checkpoints of which that is so.
struct Miss {
  ModelTypes types;
  std::string_view why = {};
  MissEffect effect = MissEffect::kOnes;
  /// quant_methods, as in MethodRules; empty: any.
  std::vector<std::string_view> methods = {};
  /// Endings of tensors' names, or beginnings, which end in a dot, one of which the checkpoint
  /// has; empty: any scale.
  std::vector<std::string_view> names = {};
  /// Its attention has no parameters of scales, so a file of scales can be given beside them.
  bool lacks_parameters = false;
  /// Keys of config.json, all of which have such values. A verdict on a type alone passes over
  /// misses with settings.
  std::vector<Setting> settings = {};
  bool needs_weights = false;    ///< the miss is for checkpoints whose weights are quantized, too
  std::string_view format = {};  ///< of ours that the engine reads for these models, for remedies
};

/// An engine and one of our formats, for tables.
struct EngineFormat {
  std::string_view format;
  std::string_view method = {};              ///< quant_method of its checkpoints
  std::vector<std::string_view> names = {};  ///< its tensors' names end so
  Reads otherwise = Reads::kYes;             ///< for tried models that are not missed
  std::string_view note = {};                ///< what it needs, or why it reads none
  bool is_scales_file = false;               ///< read as ScalesFileRules say
};

/// A value of ModelOpt's quant_algo and the quant_method that it stands for.
struct AlgorithmRule {
  std::string_view algorithm, method;
};

/// How an engine finds the configuration of a quantization, and its quant_method.
struct ConfigReading {
  QuantFile quant_file = QuantFile::kNotRead;
  bool needs_method = false;             ///< refuses a quantization_config without quant_method
  bool method_has_case = false;          ///< COMPRESSED-TENSORS is another method
  bool reads_compression_config = true;  ///< the old key of compressed-tensors
  bool refuses_auto_type = false;        ///< refuses torch_dtype "auto" in config.json
  bool refuses_null_config = false;      ///< refuses a quantization_config of null
  /// A kv_cache_scheme that Python takes for false ({}, [], false, 0) counts as not there.
  bool false_scheme_is_none = false;
  std::vector<KeyCheck> config = {};  ///< of quantization_config, whatever its quant_method
  std::vector<KeyCheck> file = {};    ///< of hf_quant_config.json
  /// Refuses a text_config of config.json that describes no model.
  bool refuses_bare_text_config = false;
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

/// How an engine chooses among the safetensors files of a folder.
struct FileRules {
  bool prefers_single = false;    ///< model.safetensors, else the index's; else all files
  bool reads_index = true;        ///< of all files it takes those that the index names
  bool refuses_repeats = false;   ///< of a tensor's name in two files
  bool counts_digits = false;     ///< reads model-9 before model-10, and the last one holds
  std::string_view prefers = {};  ///< files that begin so, where there are any, and no other
  std::vector<std::string_view> leaves_out = {};  ///< files with these words in their names
};

/// The dtype in which an engine runs a model, for scales that it rounds to it.
struct RunDtype {
  bool takes_float32 = true;       ///< else bfloat16 stands for it
  ModelTypes refuse_float16 = {};  ///< bfloat16 stands for it
  bool refuses_float64 = false;    ///< with a quantization
  bool widest =
      false;  ///< where config.json names none: the widest of all tensors, else the first's
};

/// How an engine's drafts of some models read the scales of the draft layer. Names are those that
/// were tried with its loader of drafts, below the attention module, with k or v for {}; of others
/// it is not known what becomes of them.
struct DraftReading {
  ModelTypes types;
  std::string_view method;  ///< quant_method of the checkpoints that were tried
  std::vector<std::string_view> loaded = {};
  std::vector<std::string_view> dropped = {};  ///< the draft has 1.0
  std::vector<std::string_view> refused = {};  ///< the loader stops
};

/// Rules by which one version of an engine loads a checkpoint's KV scales.
struct EngineRules {
  std::string_view title;
  std::vector<std::string_view> versions;  ///< all; the first is meant by default
  std::string_view source = {};            ///< the files that the rules were read from
  ConfigReading reading = {};
  FileRules files = {};
  RunDtype run_dtype = {};
  Unknown unknown = Unknown::kDroppedSilently;
  /// A tensor whose name is known, of a module that holds no such scale.
  Unknown unplaced = Unknown::kDroppedSilently;
  bool takes_sharded_heads = false;
  std::string_view command = {};       ///< that serves the folder named after it; empty: none
  std::string_view fp8_argument = {};  ///< what makes the cache FP8 by hand
  /// Followed by the numbers of layers, what leaves their caches in 16 bits; empty: it stores all
  /// layers alike.
  std::string_view skip_argument = {};
  std::string_view format = {};           ///< of ours that it reads best, for remedies
  std::vector<MethodRules> methods = {};  ///< the first that matches; none: `otherwise`
  MethodRules otherwise = {};             ///< of any other quant_method
  ScalesFileRules scales_file = {};
  ModelTypes tried = {};                   ///< that its own code was run on
  std::vector<Miss> misses = {};           ///< the first that fits decides
  std::vector<EngineFormat> formats = {};  ///< of ours
  std::vector<DraftReading> drafts = {};   ///< of models that were tried with one
  bool runs_drafts = true;  ///< of prediction layers; else it passes over their tensors
  std::vector<EngineRules> other_versions = {};  ///< those of `versions` that load otherwise
};

/// A checkpoint, as far as misses tell checkpoints apart.
struct MissSubject {
  std::string_view model_type, method;  ///< quant_method
  std::vector<std::string> names = {};  ///< of its scales; of those of Linears the ends alone
  bool has_weights = false;             ///< quantized ones
  const Json* config = nullptr;         ///< config.json; nullptr: not known
};
/// Whether MethodRules decide a miss.
constexpr bool goes_by_rules(MissEffect effect) {
  return effect == MissEffect::kByRules || effect == MissEffect::kByRulesWhenAsked;
}
/// The miss that a checkpoint meets; nullptr: none.
const Miss* find_miss(const EngineRules& engine, const MissSubject& subject);

/// Number of engines that use the scales of such a checkpoint: those that read one of our formats
/// of its method, were run on models of its type, and do not miss it. Writers choose names by it.
size_t num_engines_that_hold(const MissSubject& subject);

/// By the name that --engine takes. Each engine's rules are a file of engines/.
const Registry<EngineRules>& engine_rules();

/// An engine of one version.
struct EngineChoice {
  std::string name;  ///< of engine_rules()
  std::string version;
  const EngineRules& rules() const;
};
/// "vllm", whose first version is meant, or "vllm@0.33". Throws Error for an engine or a version
/// that is not known, with those that are.
EngineChoice choose_engine(std::string_view asked);

/// The row for a quant_method.
const MethodRules& rules_for(const EngineRules& engine, std::string_view method);

/// The verdict on one engine, one format and one model.
struct EngineVerdict {
  std::string_view name;             ///< of engine_rules()
  std::string_view engine, version;  ///< its title, and the first version of its rules
  std::string_view format;
  Reads reads = Reads::kNotKnown;
  std::string_view note;
  /// A file that the engine takes beside a checkpoint with scales, too, which serves other engines.
  bool goes_beside_scales = false;
};

/// For every format of every engine; model_type: that of config.json, of a multimodal checkpoint
/// the outer one. has_weights: of checkpoints with quantized weights, which formats without a
/// quantization_config do not hold.
std::vector<EngineVerdict> engine_verdicts(std::string_view model_type, bool has_weights = false);

}  // namespace kvcal
