#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "core/text.h"
#include "stored/integer_matrix.h"
#include "stored/quantization_config.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// A power of two for each 32 values. Source: vLLM 0.32 `ocp_mx_weight_dtype_and_rows`.
bool has_exponents(const Json& tensor) {
  return optional_string(tensor, "qscheme") == "per_group" &&
         optional_string(tensor, "scale_format") == "e8m0" &&
         optional_int(tensor, "group_size") == 32;
}

/// I8 with a scale for the tensor or each row. Symmetric weights have zero points of 0, too.
/// Source: Quark 0.13 export, tried.
CodeFormat int8_codes(const Json& weight) {
  const std::string qscheme = required_string(weight, "qscheme");
  if (qscheme != "per_tensor" && qscheme != "per_channel")
    fail("key 'qscheme' is '", qscheme, "', expected per_tensor or per_channel for int8");
  if (qscheme == "per_channel" && optional_int(weight, "ch_axis").value_or(0) != 0)
    fail("key 'ch_axis' is ", weight.at("ch_axis").dump(), ", expected 0 for int8");
  CodeFormat codes = packed_integers({.is_packed = false});
  codes.open = [is_tensor = qscheme == "per_tensor"](ModuleTensors& tensors) {
    return packed_integers({.is_symmetric = !tensors.has(".weight_zero_point"),
                            .is_tensor = is_tensor,
                            .is_packed = false})
        .open(tensors);
  };
  return codes;
}

/// Source: Quark 0.13 `Pack_4_bits`.
CodeFormat int4_codes(const Json& weight, bool is_signed, const Json& packing) {
  if (packing != "reorder")
    fail("key 'export.pack_method' is ", packing.dump(), ", which is not read; expected reorder");
  if (const std::string qscheme = required_string(weight, "qscheme"); qscheme != "per_group")
    fail("key 'qscheme' is '", qscheme, "', expected per_group for int4 and uint4");
  if (const auto axis = optional_int(weight, "ch_axis"); axis && *axis != 1 && *axis != -1)
    fail("key 'ch_axis' is ", *axis, ", expected 1 or -1 for int4 and uint4");
  return quark_integers(positive_group(weight, "group_size"), is_signed);
}

/// Codes of a weight that is not FP8 with plain scales; nullopt: it is.
std::optional<CodeFormat> storage_of(const Json& weight, const std::string& dtype,
                                     const Json& packing) {
  const bool is_mx = has_exponents(weight);
  if (dtype == "fp4" && is_mx)
    return fp4_codes({.codes_name = ".weight", .group = 32, .has_exponents = true});
  if (dtype == "fp6_e2m3" && is_mx) return mxfp6_codes(".weight", Fp6::kE2m3);
  if (dtype == "fp6_e3m2" && is_mx) return mxfp6_codes(".weight", Fp6::kE3m2);
  if (dtype == "fp8_e4m3") return is_mx ? std::optional(mxfp8_codes()) : std::nullopt;
  if (dtype == "int8") return int8_codes(weight);
  if (dtype == "int4" || dtype == "uint4") return int4_codes(weight, dtype == "int4", packing);
  fail("key 'dtype' is '", dtype,
       "', which is not read; expected fp8_e4m3, int8, int4 or uint4, or fp4, fp6_e2m3 or fp6_e3m2 "
       "with a scale_format of e8m0 for each 32");
}

void read_fp8_weight(const Json& weight, ModuleScheme& scheme) {
  const std::string qscheme = required_string(weight, "qscheme");
  if (qscheme == "per_channel") {
    scheme.strategy = Strategy::kChannel;
  } else if (qscheme == "per_block") {
    scheme.strategy = Strategy::kBlock;
    std::tie(scheme.block_rows, scheme.block_columns) =
        parse_block("block_size", find_field(weight, "block_size"));
  } else if (qscheme != "per_tensor") {
    fail("key 'qscheme' is '", qscheme, "', expected per_tensor, per_channel or per_block");
  }
}

void read_inputs(const Json& inputs, ModuleScheme& scheme) {
  const std::string dtype = required_string(inputs, "dtype");
  const std::string qscheme = required_string(inputs, "qscheme");
  if (has_exponents(inputs)) {
    scheme.unrun_input = scheme.source + " quantizes inputs to " + dtype + " with powers of two";
    return;
  }
  if (has_word("int8 uint8 int4 uint4", dtype)) {
    scheme.unrun_input = scheme.source + " quantizes inputs to " + dtype;
    return;
  }
  if (dtype != "fp8_e4m3")
    fail("key 'dtype' is '", dtype, "', which is not run; expected fp8_e4m3 or int8");
  if (!optional_bool(inputs, "is_dynamic").value_or(false)) {
    if (qscheme != "per_tensor")
      fail("static inputs with qscheme '", qscheme, "' are not run, expected per_tensor");
    scheme.input = InputQuantization::kStatic;
  } else if (qscheme == "per_group") {
    scheme.input = InputQuantization::kDynamicGroup;
    scheme.group = required_int(inputs, "group_size");
    if (scheme.group < 1) fail("key 'group_size' is ", scheme.group, ", expected 1 or more");
  } else {
    scheme.input = InputQuantization::kDynamicToken;
  }
}

/// Schemes of Quark's config. The first pattern of layer_quant_config that names a module decides,
/// else layer_type_quant_config, else global_quant_config; excluded modules are 16-bit. Source:
/// vLLM 0.32 `QuarkConfig._find_matched_config`.
class QuarkSchemes {
 public:
  explicit QuarkSchemes(const Json& config) : except_(strings_of(config, "exclude")) {
    if (const Json* packing = member(config, "export", "pack_method")) packing_ = *packing;
    if (const Json* global = object_member(config, "global_quant_config"))
      global_ = read("global_quant_config", *global);
    add_all(config, "layer_quant_config", layers_);
    add_all(config, "layer_type_quant_config", types_);
  }

  bool is_empty() const {
    const auto is_16_bit = [](const Named& one) { return !one.scheme; };
    return !global_ && std::ranges::all_of(layers_, is_16_bit) &&
           std::ranges::all_of(types_, is_16_bit);
  }

  const ModuleScheme* operator()(const ModuleName& module) const {
    if (module.class_name == "Embedding" || is_excluded(module)) return nullptr;
    for (const Named& one : layers_)
      if (names(one.pattern, module)) return of(one.scheme);
    for (const Named& one : types_)
      if (one.pattern == module.class_name) return of(one.scheme);
    return of(global_);
  }

 private:
  struct Named {
    std::string pattern;
    std::optional<ModuleScheme> scheme;  ///< nullopt: 16-bit
  };

  static const ModuleScheme* of(const std::optional<ModuleScheme>& scheme) {
    return scheme ? &*scheme : nullptr;
  }

  void add_all(const Json& config, const std::string& key, std::vector<Named>& into) {
    const Json* layers = object_member(config, key);
    if (!layers) return;
    for (const auto& [pattern, layer] : layers->items())
      into.push_back({pattern, read(key + "." + pattern, layer)});
  }

  std::optional<ModuleScheme> read(const std::string& key, const Json& layer) {
    const Json* weight = in_context(key, [&] { return object_member(layer, "weight"); });
    if (!weight) return std::nullopt;
    ModuleScheme scheme;
    scheme.source = key;
    in_context(key + ".weight", [&] {
      if (optional_bool(*weight, "is_dynamic").value_or(false))
        fail("weights with dynamic scales are not read");
      scheme.storage = storage_of(*weight, required_string(*weight, "dtype"), packing_);
      if (!scheme.storage) read_fp8_weight(*weight, scheme);
    });
    in_context(key + ".input_tensors", [&] {
      if (const Json* inputs = object_member(layer, "input_tensors")) read_inputs(*inputs, scheme);
    });
    return scheme;
  }

  bool names(const std::string& pattern, const ModuleName& module) const {
    return is_named_by_quark(pattern, module.name) ||
           (!module.alias.empty() && is_named_by_quark(pattern, module.alias));
  }

  bool is_excluded(const ModuleName& module) const {
    return is_exception(except_, ExceptionMatch::kWildcards, module.name) ||
           std::ranges::any_of(except_,
                               [&](const std::string& entry) { return names(entry, module); });
  }

  std::vector<std::string> except_;
  Json packing_ = "reorder";  ///< of 4-bit integers
  std::optional<ModuleScheme> global_;
  std::vector<Named> layers_, types_;
};

/// Whether the experts may be gpt-oss' stacked ones, in MXFP4.
bool stacks_experts(const QuantizationConfig& source) {
  const Json* weight = member(source.json, "global_quant_config", "weight");
  return weight && weight->is_object() && optional_string(*weight, "dtype") == "fp4" &&
         has_exponents(*weight);
}

/// AMD Quark's export.
ModuleSchemes read_quark(const QuantizationConfig& source) {
  QuarkSchemes schemes(source.json);
  if (schemes.is_empty()) return nullptr;  // KV scales alone
  return schemes;
}

/// Reads the outputs of the Linears in a list. Source: vLLM 0.32 `QuarkConfig.from_config`.
KvScheme read_quark_cache(const QuantizationConfig& config) {
  const std::string where = config.where + ".export.kv_cache_group";
  const Json* exported = find_field(config.json, "export");
  const Json* group = exported ? find_field(*exported, "kv_cache_group") : nullptr;
  if (!group || group->empty()) return {.cache = KvScheme::Cache::kUnquantized, .where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) {
    scheme.strategy = Strategy::kTensor;
    for (const std::string& name : strings_of(*exported, "kv_cache_group")) {
      const Json* layer = member(config.json, "layer_quant_config", name);
      const Json* outputs = layer ? find_field(*layer, "output_tensors") : nullptr;
      if (!outputs) continue;  // one that covers it by a wildcard
      const auto dtype = optional_string(*outputs, "dtype");
      if (dtype && *dtype != "fp8_e4m3")
        fail("the outputs of '", name, "' are ", *dtype, ", expected fp8_e4m3");
      if (optional_bool(*outputs, "is_dynamic").value_or(false))
        fail("the outputs of '", name, "' have dynamic scales, expected static ones");
    }
  });
}

/// Removes the outputs of the Linears of K and V, and entries that hold nothing else.
bool strip_quark_cache(Json& config) {
  if (const auto exported = config.find("export");
      exported != config.end() && exported->is_object())
    (*exported)["kv_cache_group"] = Json::array();
  const Json global = config.value("global_quant_config", Json());
  bool has_weights = member(global, "weight") != nullptr;
  const auto layers = config.find("layer_quant_config");
  if (layers == config.end() || !layers->is_object()) return has_weights;
  for (auto layer = layers->begin(); layer != layers->end();) {
    if (layer->is_object() && layer->contains("output_tensors"))
      (*layer)["output_tensors"] = nullptr;
    has_weights = has_weights || member(*layer, "weight") != nullptr;
    layer = *layer == global ? layers->erase(layer) : std::next(layer);
  }
  return has_weights;
}

}  // namespace

// Also the names of compressed-tensors before its pull request 133.
constexpr KvScaleNames kQuarkNames[]{
    {.name = "output scales",
     .k = ".k_proj.output_scale",
     .v = ".v_proj.output_scale",
     .q = ".q_proj.output_scale",
     .keys = KeyPosition::kBeforeRope},
    // Of no writer but ours (quark_names.h): vLLM's and SGLang's own names of the parameters.
    {.name = "attention scales",
     .k = ".attn.k_scale",
     .v = ".attn.v_scale",
     .q = ".attn.q_scale",
     .keys = KeyPosition::kBeforeRope}};
extern constinit const StoredFormat kQuarkFormat{.name = "quark",
                                                 .method = "quark",
                                                 .kv_names = kQuarkNames,
                                                 .read_schemes = read_quark,
                                                 .read_cache_scheme = read_quark_cache,
                                                 .strip_cache = strip_quark_cache,
                                                 .stacks_experts = stacks_experts,
                                                 .open_stacked = open_mxfp4_experts};

}  // namespace kvcal
