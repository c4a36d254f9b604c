#include "core/text.h"
#include "export/layer_scales.h"
#include "export/writer.h"
#include "stored/quantization_config.h"
#include "stored/quark_names.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

constexpr WeightScaleNames kWeights{
    .title = "Quark", .scalars_have_no_dims = true, .rows_have_one_dim = true};

/// Pattern of everything except vLLM's attention modules, which would get no scales if excluded.
/// Quark's own export of KV scales excludes nothing, and vLLM then looks for a scheme of 16-bit
/// Linears. Source: vLLM 0.32 and SGLang 0.5.23 `should_ignore_layer`.
constexpr std::string_view kAllLinears = "re:.*(?<!\\.attn)$";

/// FP8 tensor with one static scale, but for these changes. Source: AMD Quark 0.13's export.
Json per_tensor(const Json& changes = Json::object()) {
  Json config = {{"ch_axis", nullptr},
                 {"dtype", "fp8_e4m3"},
                 {"group_size", nullptr},
                 {"is_dynamic", false},
                 {"observer_cls", "PerTensorMinMaxObserver"},
                 {"qscheme", "per_tensor"},
                 {"round_method", "half_even"},
                 {"scale_type", "float"},
                 {"symmetric", nullptr}};
  config.update(changes);
  return config;
}

/// One scale for each index of axis.
Json per_channel(int axis, bool is_dynamic) {
  return per_tensor({{"ch_axis", axis},
                     {"is_dynamic", is_dynamic},
                     {"observer_cls", "PerChannelMinMaxObserver"},
                     {"qscheme", "per_channel"}});
}

/// One scale for each block of 128 x 128.
Json per_block() {
  return per_tensor({{"block_size", {128, 128}},
                     {"observer_cls", "PerBlockMXObserver"},
                     {"qscheme", "per_block"},
                     {"symmetric", true}});
}

/// One scale for 128 inputs of a token.
Json per_group() {
  Json config = per_channel(-1, true);
  config.update({{"group_size", 128}, {"qscheme", "per_group"}, {"symmetric", true}});
  return config;
}

/// Quantization of a Linear's weight and inputs; null: none.
struct LinearConfig {
  Json weight = nullptr, inputs = nullptr;
};

/// Source: vLLM 0.32 `QuarkConfig._is_fp8_w8a8`. Throws Error for unsupported plans.
LinearConfig linear_config(const QuantPlan& plan) {
  if (!plan.quantizes_weights()) return {};
  const LinearScheme scheme = one_scheme(plan, kWeights.title);
  const bool is_static = scheme.input == InputQuantization::kStatic;
  const bool is_by_token = scheme.input == InputQuantization::kDynamicToken;
  if (scheme.strategy == Strategy::kBlock && scheme.input == InputQuantization::kDynamicGroup &&
      scheme.block_rows == 128 && scheme.block_columns == 128 && scheme.group == 128)
    return {.weight = per_block(), .inputs = per_group()};
  if (scheme.strategy == Strategy::kBlock || (!is_static && !is_by_token))
    fail("Quark's form has no word for ", to_text(scheme),
         "; expected weights of strategy tensor or channel with inputs static or dynamic by token, "
         "or FP8_BLOCK");
  return {.weight = scheme.strategy == Strategy::kTensor ? per_tensor() : per_channel(0, false),
          .inputs = is_static ? per_tensor() : per_channel(1, true)};
}

/// The source's quantization config, or one made for the plan, without K and V.
Json base_config(const ExportInput& input) {
  if (input.kept) return input.kept->config;
  const QuantPlan& plan = input.calibration.plan;
  const Json excluded =
      plan.quantizes_weights() ? Json(excluded_modules(plan)) : Json::array({kAllLinears});
  const LinearConfig linear = linear_config(plan);
  return quark_config({{"bias", nullptr},
                       {"input_tensors", linear.inputs},
                       {"output_tensors", nullptr},
                       {"target_device", nullptr},
                       {"weight", linear.weight}},
                      excluded);
}

/// The settings that the config has for a Linear: of the first pattern that names it, else of its
/// type, else of all. Source: vLLM 0.32 `QuarkConfig._find_matched_config`.
const Json& settings_of(const Json& config, const std::string& linear) {
  if (const Json* layers = member(config, "layer_quant_config"))
    for (const auto& [pattern, settings] : layers->items())
      if (is_named_by_quark(pattern, linear)) return settings;
  if (const Json* own = member(config, "layer_type_quant_config", "Linear")) return *own;
  return config.at("global_quant_config");
}

/// The settings that this Linear of all layers with a cache has, "k_proj". Throws Error where they
/// differ, since one pattern of all layers is to have them.
Json settings_of_all(const Json& config, const ExportInput& input, const std::string& linear) {
  const Json* settings = nullptr;
  for (const AttentionCalibration& layer : input.calibration.layers) {
    const Json& own = settings_of(config, layer.module + "." + linear);
    if (settings && own != *settings)
      fail("Quark's form describes ", linear, " of all layers at once, and that of ", layer.module,
           " is quantized otherwise than the first layer's");
    settings = &own;
  }
  return settings ? *settings : config.at("global_quant_config");
}

/// Adds the outputs of K's and V's Linears, and keeps their other settings. Source: AMD Quark
/// 0.13's export; vLLM 0.32 `QuarkConfig.from_config`, which requires the same for K and V.
Json quantization_config(const ExportInput& input) {
  Json config = base_config(input);
  if (input.calibration.layers.empty()) return config;
  const Json names = Json::array({"*k_proj", "*v_proj"});
  Json& exported = config["export"];
  if (!exported.is_object()) exported = Json::object();
  exported["kv_cache_group"] = names;
  Json& layers = config["layer_quant_config"];
  if (!layers.is_object()) layers = Json::object();
  const Json described = config;
  for (const Json& name : names) {
    const auto pattern = name.get<std::string>();
    Json& layer = layers[pattern];
    if (!layer.is_object()) layer = settings_of_all(described, input, pattern.substr(1));
    layer["output_tensors"] = per_tensor();
  }
  // Without exclusions, readers that fuse Q, K and V need an entry of Q.
  if (config.value("exclude", Json::array()).empty() && !layers.contains("*q_proj"))
    layers["*q_proj"] = settings_of_all(described, input, "q_proj");
  return config;
}

/// K and V keep their own scales, which readers support; Quark gives both the larger one.
class QuarkWriter : public ScalarWriter {
 public:
  QuarkWriter() : ScalarWriter("quark", kWeights) {}

  void check(const ExportInput& input) const override {
    ScalarWriter::check(input);
    linear_config(input.calibration.plan);
  }

  FormatParts parts(const ExportInput& input) const override {
    FormatParts parts = ScalarWriter::parts(input);
    parts.config["quantization_config"] = quantization_config(input);
    return parts;
  }

 private:
  const KvScaleNames& names(const ExportInput& input) const override {
    return quark_names(input.model.config(),
                       input.kept || input.calibration.plan.quantizes_weights());
  }
};

}  // namespace

Json quark_config(Json global, Json exclude) {
  return {{"algo_config", nullptr},
          {"exclude", std::move(exclude)},
          {"export",
           {{"kv_cache_group", Json::array()},
            {"min_kv_scale", 0.0},
            {"pack_method", "reorder"},
            {"weight_format", "real_quantized"},
            {"weight_merge_groups", nullptr}}},
          {"global_quant_config", std::move(global)},
          {"layer_quant_config", Json::object()},
          {"layer_type_quant_config", Json::object()},
          {"quant_method", "quark"},
          {"quant_mode", "eager_mode"}};
}

std::unique_ptr<Writer> make_quark_writer() {
  return std::make_unique<QuarkWriter>();
}

}  // namespace kvcal
