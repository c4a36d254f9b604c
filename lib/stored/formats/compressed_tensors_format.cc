#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "core/registry.h"
#include "core/text.h"
#include "quant/module_target.h"
#include "stored/integer_matrix.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// AutoRound's key of attention modules with quantized queries, beside the groups. Source:
/// auto-round 0.16 `export_to_static_fp.py`, `_get_attention_config`.
constexpr std::string_view kAttentionKey = "attention_input_activations";
/// Keys of compressed-tensors' `QuantizationConfig` and `ModelCompressor`, keys that transformers'
/// `CompressedTensorsConfig` saves, and keys that name the writer of the file.
constexpr std::string_view kConfigKeys =
    "config_groups format global_compression_ratio ignore kv_cache_scheme quant_method "
    "moe_sparsity_config quantization_status sparsity_config version transform_config "
    "run_compressed dequantize "
    "producer provider use_optimized_inference attention_input_activations";
/// Formats that are read. A config that was never saved with a format has "fakequant".
constexpr std::string_view kFormats =
    "dense fakequant float-quantized int-quantized naive-quantized mixed-precision pack-quantized "
    "mxfp8-quantized nvfp4-pack-quantized mxfp4-pack-quantized mxfp6-pack-quantized";
constexpr std::string_view kOtherFormats = "marlin-24 sparse-bitmask sparse-24-bitmask";

void check_format(const Json& object) {
  const auto format = optional_string(object, "format");
  if (!format || has_word(kFormats, *format)) return;
  fail("key 'format' is '", *format, "', which is not read",
       has_word(kOtherFormats, *format) ? "" : near_word(*format, split(kFormats, ' ')),
       "; expected float-quantized, pack-quantized, int-quantized, nvfp4-pack-quantized, "
       "mxfp4-pack-quantized, mxfp6-pack-quantized, mxfp8-quantized, naive-quantized, "
       "mixed-precision or dense");
}

/// Throws Error for rotations that an engine applies before Linears and in attention.
void check_transforms(const Json& config) {
  const Json* transforms = find_field(config, "transform_config");
  if (!transforms || transforms->empty()) return;
  const Json* groups =
      transforms->is_object() ? find_field(*transforms, "config_groups") : transforms;
  if (groups && !groups->empty())
    fail(
        "key 'transform_config' asks for transforms of weights or inputs, which are not run; "
        "expected none");
}

void check_sparsity(const Json& config) {
  const Json* sparsity = find_field(config, "sparsity_config");
  if (!sparsity || sparsity->empty()) return;
  const auto format = in_context(
      "sparsity_config", [&] { return optional_string(*sparsity, "format").value_or("dense"); });
  if (format != "dense")
    fail("key 'sparsity_config.format' is '", format, "', which is not read; expected dense");
}

/// Throws Error where layers have numbers of experts of their own, or constants in place of
/// experts. Where all have the same number, config.json says it, too. Source: compressed-tensors
/// 0.20.1 `ExpertSparsityConfig`.
void check_expert_sparsity(const Json& config) {
  constexpr const char* kKey = "moe_sparsity_config";
  const Json* sparsity = find_field(config, kKey);
  if (!sparsity || sparsity->empty() || *sparsity == "") return;
  in_context(kKey, [&] {
    if (!sparsity->is_object()) fail("found ", kind_of(*sparsity), ", expected an object or null");
    const std::string method = required_string(*sparsity, "method");
    if (method != "prune")
      fail("key 'method' is '", method, "', ",
           method == "novice" ? "whose constants in place of experts are not run"
                              : "which is not known",
           "; expected prune");
    const Json* counts = find_field(*sparsity, "num_experts");
    if (!counts || !counts->is_array())
      fail_missing("num_experts", "a list of integers, null for layers without experts");
    std::set<int64_t> different;
    for (const Json& count : *counts) {
      if (count.is_null()) continue;
      if (!count.is_number_integer())
        fail("key 'num_experts' holds ", count.dump(), ", expected integers or null");
      different.insert(count.get<int64_t>());
    }
    if (different.size() > 1)
      fail("key 'num_experts' gives layers from ", *different.begin(), " to ", *different.rbegin(),
           " experts, and layers with numbers of their own are not run");
  });
}

/// Kinds of weights that a format holds. Source: compressed-tensors 0.20, `can_compress` of each
/// compressor.
struct FormatRow {
  std::string_view format;
  bool (*holds)(const QuantArgs&);
};

bool is_integer(const QuantArgs& args) {
  return args.type == QuantType::kInt;
}
bool is_floats(const QuantArgs& args, int bits) {
  return args.type == QuantType::kFloat && args.num_bits == bits;
}
bool has_groups_of_32(const QuantArgs& args) {
  return args.strategy == Strategy::kGroup && args.group_size == 32;
}

constexpr std::array<FormatRow, 8> kFormatRows{{
    {"pack-quantized", is_integer},
    {"int-quantized", [](const QuantArgs& args) { return is_integer(args) && args.num_bits == 8; }},
    {"float-quantized", [](const QuantArgs& args) { return is_floats(args, 8); }},
    {"naive-quantized", [](const QuantArgs& args) { return args.num_bits == 8; }},
    {"nvfp4-pack-quantized", [](const QuantArgs& args) { return is_floats(args, 4); }},
    {"mxfp4-pack-quantized",
     [](const QuantArgs& args) { return is_floats(args, 4) && has_groups_of_32(args); }},
    {"mxfp6-pack-quantized",
     [](const QuantArgs& args) { return is_floats(args, 6) && has_groups_of_32(args); }},
    {"mxfp8-quantized",
     [](const QuantArgs& args) { return is_floats(args, 8) && has_groups_of_32(args); }},
}};

void check_holds(const QuantArgs& args, const std::optional<std::string>& format) {
  const auto row =
      format ? std::ranges::find(kFormatRows, *format, &FormatRow::format) : kFormatRows.end();
  if (row != kFormatRows.end() && !row->holds(args))
    fail("key 'format' is '", *format, "', and weights are of type ", name_of(args.type), ", ",
         counted(args.num_bits, "bit"), ", strategy ", name_of(*args.strategy),
         ", which that format does not hold");
}

CodeFormat integers(const QuantArgs& args, const std::optional<std::string>& format) {
  if (args.num_bits < 1 || args.num_bits > 8)
    fail("integers of ", counted(args.num_bits, "bit"), " are not read, expected 1 to 8");
  const Strategy strategy = *args.strategy;
  if (strategy != Strategy::kTensor && strategy != Strategy::kChannel &&
      strategy != Strategy::kGroup)
    fail("strategy '", name_of(strategy),
         "' of integer weights is not read, expected tensor, channel or group");
  const bool is_packed = format == "pack-quantized" || args.num_bits != 8;
  return packed_integers({.bits = args.num_bits,
                          .is_symmetric = args.symmetric,
                          .group = strategy == Strategy::kGroup ? *args.group_size : 0,
                          .is_tensor = strategy == Strategy::kTensor,
                          .is_packed = is_packed});
}

CodeFormat fp4(const QuantArgs& args) {
  if (!args.symmetric) fail("asymmetric FP4 is not read");
  if (has_groups_of_32(args)) return fp4_codes({.group = 32, .has_exponents = true});
  if (*args.strategy != Strategy::kTensorGroup || args.group_size != 16)
    fail("FP4 of strategy ", name_of(*args.strategy), " is not read, expected tensor_group with ",
         "groups of 16, or group with groups of 32");
  return fp4_codes({.global_name = ".weight_global_scale", .divides_global = true});
}

/// Whether arguments are of FP8, E4M3.
bool is_fp8(const Json& args) {
  return optional_string(args, "type").value_or("int") == "float" &&
         optional_int(args, "num_bits").value_or(8) == 8;
}

/// Storage of weights of these arguments. format: of the group, or of the whole config. nullopt:
/// FP8 with plain scales. Throws Error where format and arguments disagree, and for what is not
/// read.
std::optional<CodeFormat> compressed_tensors_storage(const Json& quant_args,
                                                     const std::optional<std::string>& format) {
  const QuantArgs args = parse_args(quant_args);
  check_holds(args, format);
  if (args.type == QuantType::kInt) return integers(args, format);
  if (args.num_bits == 4) return fp4(args);
  if (args.num_bits == 6 && has_groups_of_32(args)) return mxfp6_codes();
  if (args.num_bits != 8)
    fail("type 'float' of ", counted(args.num_bits, "bit"), ", strategy ", name_of(*args.strategy),
         ", is not read; expected 4 or 8 bits, or 6 in groups of 32");
  if (has_groups_of_32(args) && (format == "mxfp8-quantized" || args.scale_dtype))
    return mxfp8_codes();
  return std::nullopt;
}

/// Weights of FP8 with plain scales.
void parse_weights(const Json& args, ModuleScheme& scheme) {
  scheme.strategy = parse_fp8_args(args);
  if (scheme.strategy == Strategy::kBlock) {
    constexpr const char* kKey = "block_structure";
    std::tie(scheme.block_rows, scheme.block_columns) = parse_block(kKey, find_field(args, kKey));
  } else if (scheme.strategy != Strategy::kTensor && scheme.strategy != Strategy::kChannel) {
    fail("strategy '", name_of(scheme.strategy),
         "' of FP8 weights is not read, expected tensor, channel or block");
  }
}

void parse_inputs(const Json& args, ModuleScheme& scheme) {
  const Strategy strategy = parse_fp8_args(args);
  if (!is_dynamic(args)) {
    if (strategy != Strategy::kTensor)
      fail("static inputs of strategy '", name_of(strategy), "' are not run, expected tensor");
    scheme.input = InputQuantization::kStatic;
  } else if (strategy == Strategy::kGroup) {
    scheme.input = InputQuantization::kDynamicGroup;
    scheme.group = required_int(args, "group_size");
    if (scheme.group < 1) fail("key 'group_size' is ", scheme.group, ", expected 1 or more");
  } else if (strategy == Strategy::kToken || strategy == Strategy::kTensor) {
    // With one scale per batch a token would depend on its neighbours; engines use one per token
    // there, too (vLLM's cutlass path).
    scheme.input = InputQuantization::kDynamicToken;
  } else {
    fail("dynamic inputs of strategy '", name_of(strategy),
         "' are not run, expected tensor, token or group");
  }
}

/// compressed-tensors' config groups. Precedence of a module's targets: exact names, then patterns,
/// each alphabetically, then class names; of groups with the same target, the last. Source:
/// compressed-tensors 0.19 `apply_quantization_config`, `match_targets`.
class ConfigGroups {
 public:
  explicit ConfigGroups(const Json& config)
      : format_(optional_string(config, "format")), ignore_(strings_of(config, "ignore")) {
    const Json* groups = find_field(config, "config_groups");
    if (!groups) return;
    if (!groups->is_object()) fail_kind("config_groups", "an object of groups", *groups);
    for (const auto& [name, group] : groups->items())
      in_context("config_groups." + name, [&, &name = name, &group = group] { add(name, group); });
  }

  const ModuleScheme* operator()(const ModuleName& module) const {
    const auto is_ignored = [&](const std::string& pattern) {
      return pattern == module.class_name || names(pattern, module);
    };
    if (std::ranges::any_of(ignore_, is_ignored)) return nullptr;
    // The keys of a map are in alphabetical order; "re:" patterns come after exact names.
    for (const bool is_pattern : {false, true})
      for (const auto& [target, scheme] : targets_)
        if (target.starts_with("re:") == is_pattern && names(target, module))
          return scheme_of(scheme);
    const auto by_class = targets_.find(module.class_name);
    return by_class == targets_.end() ? nullptr : scheme_of(by_class->second);
  }

  bool is_empty() const {
    return std::ranges::none_of(schemes_, [](const auto& scheme) { return scheme.has_value(); });
  }

 private:
  void add(const std::string& name, const Json& group) {
    if (!group.is_object()) fail("found ", kind_of(group), ", expected an object");
    // Source: compressed-tensors 0.19 `QuantizationScheme`, which refuses others.
    check_keys(group, split("targets weights input_activations output_activations format", ' '));
    check_format(group);
    const Json* weights = find_field(group, "weights");
    const Json* inputs = find_field(group, "input_activations");
    if (find_field(group, "output_activations")) fail("FP8 outputs are not run");
    std::optional<ModuleScheme> scheme;
    // Groups with only inputs are for attention modules, whose scales are stored with the cache's.
    if (weights) {
      scheme.emplace();
      scheme->source = "config group '" + name + "'";
      const auto format = optional_string(group, "format");
      in_context("weights", [&] { add_weights(*weights, format ? format : format_, *scheme); });
      if (inputs) in_context("input_activations", [&] { add_inputs(*inputs, *scheme); });
    }
    for (const std::string& target : strings_of(group, "targets"))
      targets_[target] = schemes_.size();
    schemes_.push_back(std::move(scheme));
  }

  void add_weights(const Json& args, const std::optional<std::string>& format,
                   ModuleScheme& scheme) {
    if (is_dynamic(args)) fail("weights with dynamic scales are not read");
    scheme.storage = compressed_tensors_storage(args, format);
    if (!scheme.storage) parse_weights(args, scheme);
  }

  /// FP8 inputs are run; others are told.
  static void add_inputs(const Json& args, ModuleScheme& scheme) {
    if (is_fp8(args) && !(scheme.storage && find_field(args, "scale_dtype")))
      return parse_inputs(args, scheme);
    const QuantArgs parsed = parse_args(args);
    scheme.unrun_input = scheme.source + " quantizes inputs to " + name_of(parsed.type) + ", " +
                         counted(parsed.num_bits, "bit");
  }

  /// Matches the name in the checkpoint, or transformers' name.
  bool names(const std::string& pattern, const ModuleName& module) const {
    return matches_target(pattern, module.name) ||
           (!module.alias.empty() && matches_target(pattern, module.alias));
  }

  const ModuleScheme* scheme_of(size_t index) const {
    return schemes_[index] ? &*schemes_[index] : nullptr;
  }

  std::optional<std::string> format_;  ///< of groups without one
  std::vector<std::string> ignore_;
  std::vector<std::optional<ModuleScheme>> schemes_;
  std::map<std::string, size_t, std::less<>> targets_;
};

/// Scales of queries are static, and stored with those of the cache.
void check_attention(const Json& config) {
  const Json* attention = find_field(config, kAttentionKey);
  if (!attention) return;
  in_context(std::string(kAttentionKey), [&] {
    if (!attention->is_object()) fail("found ", kind_of(*attention), ", expected an object");
    check_keys(*attention, split("targets input_activations", ' '));
    const Json* inputs = find_field(*attention, "input_activations");
    if (!inputs) fail_missing("input_activations", "an object");
    in_context("input_activations", [&] {
      parse_fp8_args(*inputs);
      if (is_dynamic(*inputs)) fail("queries with dynamic scales are not read");
    });
  });
}

ModuleSchemes read_groups(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source, split(kConfigKeys, ' '));
  check_format(config);
  check_transforms(config);
  check_sparsity(config);
  check_expert_sparsity(config);
  check_attention(config);
  ConfigGroups groups(config);
  return groups.is_empty() ? nullptr : ModuleSchemes(std::move(groups));
}

KvScheme read_groups_cache(const QuantizationConfig& config) {
  const std::string where = config.where + ".kv_cache_scheme";
  const Json* args = find_field(config.json, "kv_cache_scheme");
  if (!args) return {.cache = KvScheme::Cache::kUnquantized, .where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) { parse_cache_args(*args, scheme); });
}

bool has_elements(const Json* value) {
  return value && !value->empty();
}

/// Whether a group quantizes weights, or the inputs of attention.
bool has_groups(const Json& config) {
  const Json* groups = member(config, "config_groups");
  return groups && std::ranges::any_of(*groups, [](const Json& group) {
           return has_elements(member(group, "targets")) &&
                  (member(group, "weights") || member(group, "input_activations"));
         });
}

/// Removes K and V from the config. Returns whether it still quantizes weights.
bool strip_groups_cache(Json& config) {
  if (config.contains("kv_cache_scheme")) config["kv_cache_scheme"] = nullptr;
  return has_groups(config) || has_elements(member(config, "sparsity_config")) ||
         has_elements(member(config, "transform_config"));
}

/// Removes the groups with only inputs, which are for attention modules.
bool strip_groups_queries(Json& config) {
  const bool has_key = config.erase(std::string(kAttentionKey)) > 0;
  const auto groups = config.find("config_groups");
  if (groups == config.end() || !groups->is_object()) return has_key;
  const size_t before = groups->size();
  for (auto group = groups->begin(); group != groups->end();)
    group = member(*group, "input_activations") && !member(*group, "weights") ? groups->erase(group)
                                                                              : std::next(group);
  return has_key || groups->size() != before;
}

}  // namespace

constexpr KvScaleNames kCompressedTensorsNames[]{{.name = "compressed-tensors",
                                                  .k = ".k_scale",
                                                  .v = ".v_scale",
                                                  .q = ".q_scale",
                                                  .keys = KeyPosition::kAfterRope}};
extern constinit const StoredFormat kCompressedTensorsFormat{.name = "compressed-tensors",
                                                             .method = "compressed-tensors",
                                                             .kv_names = kCompressedTensorsNames,
                                                             .read_schemes = read_groups,
                                                             .read_cache_scheme = read_groups_cache,
                                                             .strip_cache = strip_groups_cache,
                                                             .strip_queries = strip_groups_queries};

}  // namespace kvcal
