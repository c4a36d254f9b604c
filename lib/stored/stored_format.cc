#include "stored/stored_format.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fnmatch.h>

#include "core/error.h"
#include "quant/module_target.h"
#include "stored/quantization_config.h"

namespace kvcal {

// One format for each file of formats/.
extern const StoredFormat kAscendFormat, kAutoRoundFormat, kAwqFormat, kBitsandbytesFormat,
    kCompressedTensorsFormat, kFbgemmFp8Format, kFp8Format, kGptqFormat, kLightllmFormat,
    kModeloptFormat, kMxfp4Format, kMxfp8Format, kOnnxruntimeGenaiFormat, kQuarkFormat,
    kRankFilesFormat, kScalesJsonFormat, kTgiFormat, kW8a8Int8Format;

std::span<const StoredFormat* const> stored_formats() {
  static constexpr std::array kFormats{
      &kCompressedTensorsFormat,  // llm-compressor
      &kFp8Format,                // AutoFP8, DeepSeek
      &kModeloptFormat,           // ModelOpt
      &kQuarkFormat,              // AMD Quark
      &kAscendFormat,             // msModelSlim, for vLLM-Ascend
      &kGptqFormat,               // GPTQ, GPTQModel
      &kAwqFormat,                // AutoAWQ
      &kAutoRoundFormat,          // AutoRound
      &kFbgemmFp8Format,          // FBGEMM
      &kMxfp4Format,              // gpt-oss
      &kMxfp8Format,              // Inkling 2, MiniMax
      &kW8a8Int8Format,           // SGLang
      &kBitsandbytesFormat,       // bitsandbytes
      &kTgiFormat,                // text-generation-inference
      &kRankFilesFormat,          // TensorRT-LLM
      &kLightllmFormat,           // LightLLM
      &kOnnxruntimeGenaiFormat,   // ONNX Runtime GenAI
      &kScalesJsonFormat,         // vLLM and SGLang; claims any other JSON file
  };
  return kFormats;
}

const StoredFormat* format_of_method(std::string_view method) {
  for (const StoredFormat* format : stored_formats())
    if (!format->method.empty() && (format->has_method_variants ? method.starts_with(format->method)
                                                                : method == format->method))
      return format;
  return nullptr;
}

std::string_view name_of(KeyPosition position) {
  constexpr std::array<std::string_view, 3> kNames{"after_rope", "before_rope", "not_said"};
  return kNames.at(static_cast<size_t>(position));
}

std::span<const KvScaleNames> kv_scale_formats() {
  static const std::vector<KvScaleNames> kNames = [] {
    std::vector<KvScaleNames> all;
    for (const StoredFormat* format : stored_formats())
      all.insert(all.end(), format->kv_names.begin(), format->kv_names.end());
    return all;
  }();
  return kNames;
}

const KvScaleNames& kv_scale_format(std::string_view name) {
  const auto format = std::ranges::find(kv_scale_formats(), name, &KvScaleNames::name);
  KVCAL_CHECK(format != kv_scale_formats().end());
  return *format;
}

std::string zero_point_name(std::string_view scale_name, bool is_per_channel) {
  constexpr std::string_view kScale = "scale";
  KVCAL_CHECK(scale_name.ends_with(kScale));
  return std::string(scale_name.substr(0, scale_name.size() - kScale.size())) +
         (is_per_channel ? "offset" : "zero_point");
}

namespace {

/// Whether args are those of an INT8 cache, which compressed-tensors means where it names no type.
bool is_int8(const Json& args) {
  if (!args.is_object()) return false;
  const Json *type = find_field(args, "type"), *bits = find_field(args, "num_bits");
  const Json* symmetric = find_field(args, "symmetric");
  return (!type || *type == "int") && (!bits || *bits == 8) && (!symmetric || *symmetric == true);
}

}  // namespace

void parse_cache_args(const Json& args, KvScheme& scheme) {
  const bool is_int = is_int8(args);
  const Strategy strategy = is_int ? *parse_args(args).strategy : parse_fp8_args(args);
  if (is_int) scheme.cache = KvScheme::Cache::kInt8;
  if (is_dynamic(args)) fail("key 'dynamic' is true, engines take the scales from the checkpoint");
  if (strategy != Strategy::kTensor && strategy != Strategy::kAttnHead)
    fail("key 'strategy' is '", name_of(strategy), "', expected tensor or attn_head");
  scheme.strategy = strategy;
}

KvScheme read_kv_scheme(const QuantizationConfig& config) {
  return config.format ? config.format->read_cache_scheme(config) : KvScheme{};
}

namespace {

/// Whether part is name, or consists of dot-separated parts of it: "gate" matches "mlp.gate", not
/// "mlp.gate_proj". Engines agree only on whole names; published lists also have parts (MiniMax,
/// Ministral 3). Source: transformers 5.17 `should_convert_module`, vLLM 0.32 `is_layer_skipped`.
bool has_part(std::string_view name, std::string_view part) {
  if (part.empty()) return false;
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

}  // namespace

bool is_exception(const std::vector<std::string>& entries, ExceptionMatch how,
                  const std::string& module) {
  return std::ranges::any_of(entries, [&](const std::string& entry) {
    if (how == ExceptionMatch::kParts) return has_part(module, entry);
    // Older ModelOpt lists substrings of names. Source: vLLM 0.32 `is_layer_excluded`.
    return module.find(entry) != std::string::npos ||
           ::fnmatch(entry.c_str(), module.c_str(), FNM_NOESCAPE) == 0;
  });
}

bool is_named_by_quark(const std::string& pattern, const std::string& module) {
  return pattern.starts_with("re:") ? matches_target(pattern, module)
                                    : ::fnmatch(pattern.c_str(), module.c_str(), FNM_NOESCAPE) == 0;
}

ModuleSchemes all_but(std::vector<std::string> except, ExceptionMatch how, ModuleScheme scheme) {
  return [except = std::move(except), how,
          scheme = std::move(scheme)](const ModuleName& module) -> const ModuleScheme* {
    const bool is_read =
        module.class_name != "Embedding" && !is_exception(except, how, module.name);
    return is_read ? &scheme : nullptr;
  };
}

ModuleScheme scheme_of_method(std::string_view method) {
  ModuleScheme scheme;
  scheme.source = "quant_method " + std::string(method);
  scheme.lists_few_exceptions = true;
  return scheme;
}

ModuleSchemes read_module_schemes(const QuantizationConfig& config) {
  if (!config.format) return nullptr;
  return in_context(config.where, [&] { return config.format->read_schemes(config); });
}

}  // namespace kvcal
