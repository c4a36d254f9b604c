#include "model/fp8_schemes.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "model/compressed_tensors_schemes.h"

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

/// Its weights are not read; checkpoints with 16-bit weights have KV scales alone.
void check_quark(const Json& config) {
  const Json* global = find_field(config, "global_quant_config");
  if (global && global->is_object() && find_field(*global, "weight"))
    fail(
        "key 'global_quant_config.weight' quantizes weights; of quant_method quark only KV scales "
        "beside 16-bit weights are read");
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
        check_quark(config.json);
        return nullptr;
      case QuantForm::kNone:
        break;
    }
    return nullptr;
  });
}

}  // namespace kvcal
