#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "family/expected_tensors.h"
#include "family/model_config.h"
#include "quant/kv_format.h"
#include "quant/quant_scheme.h"
#include "quant/scale.h"
#include "stored/coded_matrix.h"
#include "stored/quantization_config.h"

namespace kvcal {

/// Position at which K was observed for its scale. RoPE rotates pairs of channels, so the largest
/// magnitude may grow or shrink by up to √2.
enum class KeyPosition : uint8_t { kAfterRope, kBeforeRope, kNotSaid };
std::string_view name_of(KeyPosition position);

/// Names of the scales of a layer's K, V and queries, after the name of the attention module.
struct KvScaleNames {
  std::string_view name;
  std::string_view k, v;                        ///< equal where one scale serves both
  std::string_view q = {};                      ///< empty: the format has no query scales
  KeyPosition keys = KeyPosition::kBeforeRope;  ///< position of the usual writer
  bool is_per_channel = false;                  ///< of an INT8 cache: one a channel of K and V
};

/// Name of the scale of softmax weights beside those of a module. No engine's reader of it is known
/// to use it: vLLM 0.32 loads it as _prob_scale, which no backend reads.
inline constexpr std::string_view kProbScale = ".prob_output_scale";

/// The names of all stored_formats(); the default of our output is first. Sources:
/// compressed-tensors 0.19; vLLM 0.32 `maybe_remap_kv_scale_name`, `get_cache_scale_mapper`, fp8.py
/// and quark.py; TGI `get_kv_scales`. Writers: llm-compressor 0.14 and ModelOpt 0.47 observe K
/// after RoPE; AMD Quark 0.13, AutoFP8, TGI's create_fp8_kv_scales_model.py and AMMO 0.7 the
/// outputs of k_proj.
std::span<const KvScaleNames> kv_scale_formats();

/// The format with this name, which must exist.
const KvScaleNames& kv_scale_format(std::string_view name);

/// Name of the zero point for a scale: ".k_zero_point" for ".k_scale"; ".kv_cache_offset" for the
/// ".kv_cache_scale" of channels.
std::string zero_point_name(std::string_view scale_name, bool is_per_channel = false);

/// KV cache that a checkpoint's config requests.
struct KvScheme {
  enum class Cache : uint8_t {
    kNotSaid,      ///< no config, or a format that may leave the choice to the engine
    kUnquantized,  ///< the format can request FP8 caches, and this config does not
    kNvfp4,        ///< NVFP4 with global scales from calibration
    kFp8,          ///< E4M3 with scales from calibration
    kInt8,         ///< INT8 with scales from calibration
    kOther,        ///< a request that no engine supports; see problem
  };
  Cache cache = KvScheme::Cache::kNotSaid;
  /// Where given: kTensor or kAttnHead, of kInt8 also kChannel.
  std::optional<Strategy> strategy = {};
  std::string where = {};    ///< file and key, for messages
  std::string problem = {};  ///< kOther
  /// Format of the cache for the scales, where config.json names it (read_dialect).
  std::optional<fp8::Format> dialect = {};

  /// Codes of the cache that the scales are for.
  KvFormat format() const {
    return cache == Cache::kInt8 ? KvFormat::int8()
                                 : KvFormat(dialect.value_or(fp8::Format::kE4m3Fn));
  }
};

/// Reads kv_cache_scheme of compressed-tensors, ModelOpt or fp8, ModelOpt's kv_cache_quant_algo, or
/// Quark's kv_cache_group.
KvScheme read_kv_scheme(const QuantizationConfig& config);

/// Parses compressed-tensors' arguments of a cache, which scheme takes for FP8 until they say INT8.
/// Throws Error where no engine supports them.
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

/// Storage of a module's weight and quantization of its input, as a config describes them.
struct ModuleScheme : LinearScheme {
  bool infers_groups = false;         ///< from the weight's blocks, without a key
  bool lists_few_exceptions = false;  ///< 16-bit weights are often unlisted
  /// Suffixes after the module's name of the weight's scale and of a static input's: the usual one,
  /// and one of other writers.
  std::array<std::string_view, 2> scale_names{".weight_scale", ""};
  std::array<std::string_view, 2> input_scale_names{".input_scale", ""};
  bool has_exponents = false;  ///< scales of U8 are powers of two, as F8_E8M0
  std::string source;          ///< file and key, for messages
  std::string unrun_input;     ///< quantization of inputs that is not run, for messages; or empty
  /// Reads weights that are not FP8 with one of the scales above.
  std::optional<CodeFormat> storage = {};
};

/// Finds the scheme of a module among those that it owns; nullptr: the module is 16-bit.
using ModuleSchemes = std::function<const ModuleScheme*(const ModuleName& module)>;

/// Reads the schemes; empty where weights are not quantized. Throws Error naming the key for
/// weights that no format reads, for a value that no format has, and for a value that would change
/// results and is not supported.
ModuleSchemes read_module_schemes(const QuantizationConfig& config);

/// Scheme of a format whose lists of exceptions are often incomplete.
ModuleScheme scheme_of_method(std::string_view method);

/// How an entry of a list of exceptions matches a module's name.
enum class ExceptionMatch : uint8_t {
  kParts,      ///< some of its dot-separated parts
  kWildcards,  ///< an fnmatch pattern, or any substring
};

bool is_exception(const std::vector<std::string>& entries, ExceptionMatch how,
                  const std::string& module);
/// How a pattern of Quark's configs matches a module's name: "re:" and an expression, or an fnmatch
/// pattern of the whole name. Source: vLLM 0.32 `QuarkConfig._find_matched_config`.
bool is_named_by_quark(const std::string& pattern, const std::string& module);

/// One scheme for all Linears outside a list of exceptions.
ModuleSchemes all_but(std::vector<std::string> except, ExceptionMatch how, ModuleScheme scheme);

/// KV scales that lie beside a checkpoint: in a file, or in the files of ranks.
struct ScalesBeside {
  /// [tensor-parallel rank][layer], one for K and V together; layers without attention have 1.0.
  /// Empty: the form has no ranks.
  std::vector<std::vector<Scale>> ranks = {};
  /// Of a form without ranks, one entry a layer, empty without attention.
  std::vector<LayerKvScales> layers = {};
  KvFormat format = fp8::Format::kE4m3Fn;  ///< codes of the cache
};

/// Whether folder holds rank files: "rank<N>.safetensors" or "rank<N>.npz", or such a name after
/// "_", "-" or ".". False where it is no folder.
bool has_rank_files(const std::filesystem::path& folder);
/// Reads the KV scales of a TensorRT-LLM checkpoint from its rank files
/// (formats/rank_files_format.cc).
ScalesBeside read_rank_files(const std::filesystem::path& folder, const ModelConfig& config);

/// One format in which checkpoints store quantized weights or KV scales, with everything that its
/// readers need. Each file of formats/ defines one; stored_format.cc lists them.
struct StoredFormat {
  std::string_view name;
  std::string_view method = {};       ///< quant_method; empty: the format has only KV scales
  bool has_method_variants = false;   ///< also a quant_method that begins with method
  std::string_view config_file = {};  ///< read where config.json has no quantization_config
  std::string_view nested_key = {};   ///< of config_file: the object that holds the format's keys
  /// Keys that say how weights are stored. Either file may have them; both must agree.
  std::string_view weight_keys = {};            ///< separated by spaces
  std::span<const KvScaleNames> kv_names = {};  ///< names of the format's KV scales
  /// Position at which the usual writer of the format observes K; nullopt: as kv_names say.
  std::optional<KeyPosition> keys = {};
  bool may_raise_scales_to_one = false;  ///< a writer raises scales below 1.0 to 1.0
  bool ranks_have_own_config = false;    ///< a folder of ranks is never a checkpoint

  /// Schemes of weights; empty where weights are not quantized. Throws Error naming the key.
  ModuleSchemes (*read_schemes)(const QuantizationConfig&) = nullptr;
  /// By default the engine's options decide.
  KvScheme (*read_cache_scheme)(const QuantizationConfig&) = [](const QuantizationConfig& config) {
    return KvScheme{.where = config.where};
  };
  /// Removes K and V from the config. Returns whether it still describes weights.
  bool (*strip_cache)(Json& config) = [](Json& config) { return !config.is_null(); };
  /// Removes queries from the config. Returns whether it described any. nullptr: the format has no
  /// query scales.
  bool (*strip_queries)(Json& config) = nullptr;

  /// Whether a config says that tensors that stack all experts are stored under names of the
  /// format's own. nullptr: none is.
  bool (*stacks_experts)(const QuantizationConfig&) = nullptr;
  /// Opens such a tensor: a matrix [out, in] of each expert; none where the file has no such
  /// tensors. read: receives their names. Throws Error as CodeFormat::open does.
  std::vector<std::unique_ptr<CodedMatrix>> (*open_stacked)(
      const ModelDir&, const std::string& tensor,
      std::set<std::string, std::less<>>& read) = nullptr;

  /// Finds the file or folder with scales beside a checkpoint: place itself, or in it. nullptr: the
  /// format has none.
  std::optional<std::filesystem::path> (*find_beside)(const std::filesystem::path& place) = nullptr;
  ScalesBeside (*read_beside)(const std::filesystem::path& found, const ModelConfig&) = nullptr;
};

/// All supported formats; the default of our output is first.
std::span<const StoredFormat* const> stored_formats();

/// The format with that quant_method; nullptr where none is supported.
const StoredFormat* format_of_method(std::string_view method);

}  // namespace kvcal
