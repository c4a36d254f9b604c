#include <array>
#include <tuple>

#include "stored/float_matrix.h"
#include "stored/fp8_args.h"
#include "stored/json_member.h"
#include "stored/stored_form.h"

namespace kvcal {
namespace {
namespace quark {

/// Scheme of one tensor in Quark's config. Throws Error for anything but E4M3.
std::string quark_qscheme(const Json& tensor) {
  const std::string dtype = required_string(tensor, "dtype");
  if (dtype != "fp8_e4m3")
    fail("key 'dtype' is '", dtype, "', which is not read; expected fp8_e4m3");
  return required_string(tensor, "qscheme");
}

void read_quark_weight(const Json& weight, ModuleScheme& scheme) {
  const std::string qscheme = quark_qscheme(weight);
  if (optional_bool(weight, "is_dynamic").value_or(false))
    fail("weights with dynamic scales are not read");
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

void read_quark_inputs(const Json& inputs, ModuleScheme& scheme) {
  const std::string qscheme = quark_qscheme(inputs);
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

/// Throws Error unless entries of layer_quant_config repeat the global one, except for outputs.
void check_quark_layers(const Json& config, const Json& global) {
  const Json* layers = find_field(config, "layer_quant_config");
  if (!layers || !layers->is_object()) return;
  const auto part = [](const Json& of, std::string_view key) {
    const Json* found = of.is_object() ? find_field(of, key) : nullptr;
    return found ? *found : Json();
  };
  for (const auto& [name, layer] : layers->items())
    for (const char* key : {"weight", "input_tensors"})
      if (part(layer, key) != part(global, key))
        fail("key 'layer_quant_config.", name, ".", key,
             "' is another than global_quant_config's, which is not read");
}

const Json* global_weight(const Json& config) {
  const Json* global = find_field(config, "global_quant_config");
  return global && global->is_object() ? find_field(*global, "weight") : nullptr;
}

/// MXFP4 of gpt-oss' stacked experts, the only 4-bit floats that are read in this form.
bool stacks_experts(const QuantizationConfig& source) {
  const Json* weight = global_weight(source.json);
  return weight && weight->is_object() && optional_string(*weight, "dtype") == "fp4" &&
         optional_string(*weight, "scale_format") == "e8m0" &&
         optional_int(*weight, "group_size") == 32;
}

/// AMD Quark's export of FP8 weights. Source: vLLM 0.32 `QuarkConfig._is_fp8_w8a8`.
std::unique_ptr<ModuleSchemes> read_schemes(const QuantizationConfig& source, TargetMatcher) {
  const Json& config = source.json;
  const Json* global = find_field(config, "global_quant_config");
  const Json none = Json::object();
  const Json* weight = global_weight(config);
  if (stacks_experts(source)) return nullptr;
  check_quark_layers(config, global ? *global : none);
  if (!weight) return nullptr;  // KV scales alone
  ModuleScheme scheme;
  scheme.source = "global_quant_config";
  in_context("global_quant_config.weight", [&] { read_quark_weight(*weight, scheme); });
  if (const Json* inputs = find_field(*global, "input_tensors"))
    in_context("global_quant_config.input_tensors", [&] { read_quark_inputs(*inputs, scheme); });
  return all_but(strings_of(config, "exclude"), ExceptionMatch::kWildcards, std::move(scheme));
}

/// Reads the outputs of the Linears in a list. Source: vLLM 0.32 `QuarkConfig.from_config`.
KvScheme read_cache_scheme(const QuantizationConfig& config) {
  const std::string where = config.where + ".export.kv_cache_group";
  const Json* exported = find_field(config.json, "export");
  const Json* group = exported ? find_field(*exported, "kv_cache_group") : nullptr;
  if (!group || group->empty()) return {.cache = KvScheme::Cache::kUnquantized, .where = where};
  return fp8_or_other(where, [&](KvScheme& scheme) {
    scheme.strategy = Strategy::kTensor;
    const Json* layers = find_field(config.json, "layer_quant_config");
    for (const std::string& name : strings_of(*exported, "kv_cache_group")) {
      const Json* layer = layers && layers->is_object() ? find_field(*layers, name) : nullptr;
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
bool strip_cache(Json& config) {
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

}  // namespace quark
}  // namespace

const StoredForm& quark_form() {
  // Also the names of compressed-tensors before its pull request 133.
  static constexpr std::array<KvForm, 1> kNames{{{.name = "output scales",
                                                  .k = ".k_proj.output_scale",
                                                  .v = ".v_proj.output_scale",
                                                  .q = ".q_proj.output_scale",
                                                  .keys = KeyPosition::kBeforeRope}}};
  static const StoredForm kForm{.name = "quark",
                                .method = "quark",
                                .kv_names = kNames,
                                .read_schemes = quark::read_schemes,
                                .read_cache_scheme = quark::read_cache_scheme,
                                .strip_cache = quark::strip_cache,
                                .stacks_experts = quark::stacks_experts,
                                .open_stacked = open_mxfp4_experts};
  return kForm;
}

}  // namespace kvcal
