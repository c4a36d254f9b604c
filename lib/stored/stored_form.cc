#include "stored/stored_form.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fnmatch.h>

#include "core/error.h"
#include "quant/module_target.h"
#include "stored/quantization_config.h"

namespace kvcal {

// One function for each file of forms/.
const StoredFormat& auto_round_form();
const StoredFormat& awq_form();
const StoredFormat& bitsandbytes_form();
const StoredFormat& compressed_tensors_form();
const StoredFormat& fbgemm_fp8_form();
const StoredFormat& fp8_form();
const StoredFormat& gptq_form();
const StoredFormat& modelopt_form();
const StoredFormat& mxfp4_form();
const StoredFormat& quark_form();
const StoredFormat& rank_files_form();
const StoredFormat& scales_json_form();
const StoredFormat& tgi_form();

std::span<const StoredFormat* const> stored_forms() {
  static const std::array kForms{
      &compressed_tensors_form(),  // llm-compressor
      &fp8_form(),                 // AutoFP8, DeepSeek
      &modelopt_form(),            // ModelOpt
      &quark_form(),               // AMD Quark
      &gptq_form(),                // GPTQ, GPTQModel
      &awq_form(),                 // AutoAWQ
      &auto_round_form(),          // AutoRound
      &fbgemm_fp8_form(),          // FBGEMM
      &mxfp4_form(),               // gpt-oss
      &bitsandbytes_form(),        // bitsandbytes
      &tgi_form(),                 // text-generation-inference
      &rank_files_form(),          // TensorRT-LLM
      &scales_json_form(),         // vLLM and SGLang
  };
  return kForms;
}

const StoredFormat* form_of_method(std::string_view method) {
  for (const StoredFormat* form : stored_forms())
    if (!form->method.empty() &&
        (form->has_method_variants ? method.starts_with(form->method) : method == form->method))
      return form;
  return nullptr;
}

std::string_view name_of(KeyPosition position) {
  constexpr std::array<std::string_view, 3> kNames{"after_rope", "before_rope", "not_said"};
  return kNames.at(static_cast<size_t>(position));
}

std::span<const KvScaleNames> kv_forms() {
  static const std::vector<KvScaleNames> kForms = [] {
    std::vector<KvScaleNames> all;
    for (const StoredFormat* form : stored_forms())
      all.insert(all.end(), form->kv_names.begin(), form->kv_names.end());
    return all;
  }();
  return kForms;
}

const KvScaleNames& kv_form(std::string_view name) {
  const auto form = std::ranges::find(kv_forms(), name, &KvScaleNames::name);
  KVCAL_CHECK(form != kv_forms().end());
  return *form;
}

std::string zero_point_name(std::string_view scale_name) {
  constexpr std::string_view kScale = "scale";
  KVCAL_CHECK(scale_name.ends_with(kScale));
  return std::string(scale_name.substr(0, scale_name.size() - kScale.size())) + "zero_point";
}

void parse_cache_args(const Json& args, KvScheme& scheme) {
  const Strategy strategy = parse_fp8_args(args);
  if (is_dynamic(args)) fail("key 'dynamic' is true, engines take the scales from the checkpoint");
  if (strategy != Strategy::kTensor && strategy != Strategy::kAttnHead)
    fail("key 'strategy' is '", name_of(strategy), "', expected tensor or attn_head");
  scheme.strategy = strategy;
}

KvScheme read_kv_scheme(const QuantizationConfig& config) {
  return config.form ? config.form->read_cache_scheme(config) : KvScheme{};
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

class SchemeWithExceptions : public ModuleSchemes {
 public:
  SchemeWithExceptions(std::vector<std::string> except, ExceptionMatch how, ModuleScheme scheme)
      : scheme_(std::move(scheme)), except_(std::move(except)), how_(how) {}

  const ModuleScheme* find(const ModuleName& module) const override {
    const bool is_read =
        module.class_name != "Embedding" && !is_exception(except_, how_, module.name);
    return is_read ? &scheme_ : nullptr;
  }

 private:
  ModuleScheme scheme_;
  std::vector<std::string> except_;
  ExceptionMatch how_;
};

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

std::unique_ptr<ModuleSchemes> all_but(std::vector<std::string> except, ExceptionMatch how,
                                       ModuleScheme scheme) {
  return std::make_unique<SchemeWithExceptions>(std::move(except), how, std::move(scheme));
}

ModuleScheme scheme_of_method(std::string_view method) {
  ModuleScheme scheme;
  scheme.source = "quant_method " + std::string(method);
  scheme.lists_few_exceptions = true;
  return scheme;
}

std::unique_ptr<ModuleSchemes> read_module_schemes(const QuantizationConfig& config) {
  if (!config.form) return nullptr;
  return in_context(config.where, [&] { return config.form->read_schemes(config); });
}

}  // namespace kvcal
