#include "stored/fp8_schemes.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "stored/compressed_tensors_schemes.h"

namespace kvcal {
namespace {

/// Whether part is name, or some of the words between its dots: "gate" of "mlp.gate", not of
/// "mlp.gate_proj". Engines agree on whole names alone; published lists have parts, too (MiniMax,
/// Ministral 3). Source: transformers 5.17 `should_convert_module`, vLLM 0.32 `is_layer_skipped`.
bool has_part(std::string_view name, std::string_view part) {
  if (part.empty()) return false;
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

/// One scheme for all Linears that a list does not except.
class OneScheme : public ModuleSchemes {
 public:
  enum class Exceptions { kParts, kWildcards };
  OneScheme(ModuleScheme scheme, std::vector<std::string> except, Exceptions how)
      : scheme_(std::move(scheme)), except_(std::move(except)), how_(how) {}

  const ModuleScheme* find(const ModuleName& module) const override {
    const auto is_excepted = [&](const std::string& entry) {
      if (how_ == Exceptions::kParts) return has_part(module.name, entry);
      // Older ModelOpt lists parts of names. Source: vLLM 0.32 `is_layer_excluded`.
      return module.name.find(entry) != std::string::npos ||
             ::fnmatch(entry.c_str(), module.name.c_str(), FNM_NOESCAPE) == 0;
    };
    if (module.class_name == "Embedding" || std::ranges::any_of(except_, is_excepted))
      return nullptr;
    return &scheme_;
  }

 private:
  ModuleScheme scheme_;
  std::vector<std::string> except_;
  Exceptions how_;
};

/// Source: vLLM 0.32 `resolve` of modelopt.py: what each word stands for.
std::unique_ptr<ModuleSchemes> read_modelopt(const QuantizationConfig& source) {
  const Json& config = source.json;
  const std::string_view exclude_key = source.is_nested ? "exclude_modules" : "ignore";
  constexpr std::array<std::string_view, 14> kKeys{
      "quant_algo",     "kv_cache_quant_algo", "kv_cache_scheme", "exclude_modules",  "ignore",
      "group_size",     "config_groups",       "quant_method",    "quantized_layers", "producer",
      "ignored_layers", "has_zero_point",      "pre_quant_scale", "quantization"};
  check_spelling(config, kKeys);
  const auto written = optional_string(config, "quant_algo");
  if (!written) return nullptr;  // KV scales alone
  std::string algo = *written;
  std::ranges::transform(algo, algo.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  ModuleScheme scheme;
  scheme.source = "quant_algo " + algo;
  if (algo == "FP8") {
    scheme.input = InputQuantization::kStatic;
  } else if (algo == "FP8_PER_CHANNEL_PER_TOKEN") {
    scheme.strategy = Strategy::kChannel;
    scheme.input = InputQuantization::kDynamicToken;
  } else if (algo == "FP8_PB_WO") {
    scheme.strategy = Strategy::kBlock;
    scheme.block_rows = scheme.block_columns = scheme.group = 128;
    scheme.input = InputQuantization::kDynamicGroup;
  } else {
    fail("key 'quant_algo' is '", *written,
         "', whose weights are not read; expected FP8, FP8_PER_CHANNEL_PER_TOKEN or FP8_PB_WO");
  }
  return std::make_unique<OneScheme>(std::move(scheme), strings_of(config, exclude_key),
                                     OneScheme::Exceptions::kWildcards);
}

/// AutoFP8's form, a scale a tensor, and DeepSeek's, a scale a block.
std::unique_ptr<ModuleSchemes> read_fp8(const Json& config) {
  constexpr std::array<std::string_view, 13> kKeys{"quant_method",
                                                   "activation_scheme",
                                                   "weight_block_size",
                                                   "ignored_layers",
                                                   "modules_to_not_convert",
                                                   "modules_to_convert",
                                                   "kv_cache_scheme",
                                                   "fmt",
                                                   "scale_fmt",
                                                   "dequantize",
                                                   "store_dtype",
                                                   "producer",
                                                   "version"};
  check_spelling(config, kKeys);
  if (find_field(config, "modules_to_convert"))
    fail("key 'modules_to_convert' is not read; expected modules_to_not_convert");
  ModuleScheme scheme;
  scheme.source = "quant_method fp8";
  scheme.lists_few_exceptions = true;
  const std::string activation = optional_string(config, "activation_scheme").value_or("dynamic");
  if (activation != "static" && activation != "dynamic")
    fail("key 'activation_scheme' is '", activation, "', expected static or dynamic");
  const bool is_static = activation == "static";
  scheme.input = is_static ? InputQuantization::kStatic : InputQuantization::kDynamicToken;
  if (const Json* block = find_field(config, "weight_block_size")) {
    if (is_static) fail("activation_scheme static does not go with weight_block_size");
    std::tie(scheme.block_rows, scheme.block_columns) = parse_block("weight_block_size", block);
    scheme.strategy = Strategy::kBlock;
    scheme.scale_name = ".weight_scale_inv";
    scheme.input = InputQuantization::kDynamicGroup;
    scheme.group = scheme.block_columns;
    scheme.infers_groups = true;
  }
  std::vector<std::string> except = strings_of(config, "ignored_layers");
  std::ranges::copy(strings_of(config, "modules_to_not_convert"), std::back_inserter(except));
  return std::make_unique<OneScheme>(std::move(scheme), std::move(except),
                                     OneScheme::Exceptions::kParts);
}

/// One tensor's part of Quark's config. Throws Error for other than E4M3.
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

/// Entries of layer_quant_config repeat the global one, but for what they say of outputs.
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

/// AMD Quark's export of FP8 weights. Source: vLLM 0.32 `QuarkConfig._is_fp8_w8a8`.
std::unique_ptr<ModuleSchemes> read_quark(const Json& config) {
  const Json* global = find_field(config, "global_quant_config");
  const Json none = Json::object();
  check_quark_layers(config, global ? *global : none);
  const Json* weight = global && global->is_object() ? find_field(*global, "weight") : nullptr;
  if (!weight) return nullptr;  // KV scales alone
  ModuleScheme scheme;
  scheme.source = "global_quant_config";
  in_context("global_quant_config.weight", [&] { read_quark_weight(*weight, scheme); });
  if (const Json* inputs = find_field(*global, "input_tensors"))
    in_context("global_quant_config.input_tensors", [&] { read_quark_inputs(*inputs, scheme); });
  return std::make_unique<OneScheme>(std::move(scheme), strings_of(config, "exclude"),
                                     OneScheme::Exceptions::kWildcards);
}

}  // namespace

std::unique_ptr<ModuleSchemes> read_module_schemes(const QuantizationConfig& config,
                                                   TargetMatcher matches) {
  if (config.form == QuantForm::kNone) return nullptr;
  return in_context(config.where, [&]() -> std::unique_ptr<ModuleSchemes> {
    switch (config.form) {
      case QuantForm::kCompressedTensors:
        return read_compressed_tensors(config.json, matches);
      case QuantForm::kFp8:
        return read_fp8(config.json);
      case QuantForm::kModelOpt:
        return read_modelopt(config);
      case QuantForm::kQuark:
        return read_quark(config.json);
      case QuantForm::kNone:
        break;
    }
    return nullptr;
  });
}

}  // namespace kvcal
