#include <algorithm>

#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/planned_weights.h"
#include "export/writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr std::string_view kTitle = "compressed-tensors";
constexpr WeightScaleNames kWeights{.title = kTitle};

/// Throws Error where the scheme is one that neither vLLM nor transformers loads. Sources: vLLM
/// `CompressedTensorsKVCacheMethod.validate_kv_cache_scheme`; compressed-tensors 0.20
/// `initialize_attn_qparams`, which has INT8 too, and no scales of the channels of a cache.
void check_scheme(const Calibration& calibration) {
  const QuantArgs& args = calibration.kv_args;
  check_holds(calibration, kTitle);
  const bool is_of_type = (args.type == QuantType::kInt) == calibration.kv_format.is_int8();
  if (!is_of_type || args.num_bits != 8 || !args.symmetric || args.dynamic)
    fail("kv_cache_scheme of type ", name_of(args.type), ", ", counted(args.num_bits, "bit"),
         ", symmetric ", args.symmetric, ", dynamic ", args.dynamic,
         "; engines load float or int, 8 bits, symmetric, static");
  if (calibration.kv_format == fp8::Format::kE5m2)
    fail("a compressed-tensors checkpoint holds scales of E4M3, the calibration is of E5M2");
}

/// The source's config with the scheme of K and V added.
Json with_cache(Json config, const Calibration& calibration) {
  if (calibration.layers.empty()) return config;
  config["kv_cache_scheme"] = to_json(calibration.kv_args);
  Json& ignore = config["ignore"];
  if (!ignore.is_array()) ignore = Json::array();
  for (const AttentionCalibration& layer : calibration.layers)
    if (!layer.ignored)
      ignore.erase(std::remove(ignore.begin(), ignore.end(), Json(layer.module)), ignore.end());
  for (const std::string& module : ignored_modules(calibration))
    if (std::ranges::find(ignore, Json(module)) == ignore.end()) ignore.push_back(module);
  return config;
}

class CompressedTensorsWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    const Calibration& calibration = input.calibration;
    // Kept weights alone are a checkpoint, too.
    if (!input.kept || !calibration.layers.empty()) check_calibration(calibration);
    if (!calibration.layers.empty()) check_scheme(calibration);
    check_kept(input, kTitle, kTitle);
    check_covers_model(input.model, calibration);
    check_tensors_are_new(input.model, attention_tensor_names(calibration));
    if (calibration.plan.quantizes_weights()) check_weights(input, kWeights);
    for (const AttentionCalibration& layer : calibration.layers)
      if (!layer.ignored)
        in_context(layer.module, [&] {
          tied_over_ranks(layer.k.scales, input.tp_size);
          if (layer.q) tied_over_ranks(layer.q->scales, input.tp_size);
        });
    if (input.scale_in_model_dtype) check_attention_scales_fit(input);
  }

  FormatParts parts(const ExportInput& input) const override {
    const Calibration& calibration = input.calibration;
    FormatParts parts{.tensors = attention_tensors(input),
                      .files = recipe_and_arguments(input),
                      .weights = &kWeights};
    parts.config["quantization_config"] =
        input.kept ? with_cache(input.kept->config, calibration) : quantization_config(calibration);
    // Engines do not read it in this format; later conversions do.
    if (calibration.kv_format == fp8::Format::kE4m3Fnuz)
      parts.config[std::string(kDialectKey)] = name_of(calibration.kv_format);
    return parts;
  }

  WrittenScales held(const AttentionCalibration& layer, int64_t tp_size) const override {
    return {tied_over_ranks(layer.k.scales, tp_size), tied_over_ranks(layer.v.scales, tp_size)};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes = weight_notes(input);
    if (input.calibration.is_latent && !input.calibration.layers.empty())
      notes.emplace_back(kLatentNote);
    if (input.calibration.kv_format == fp8::Format::kE4m3Fnuz)
      notes.emplace_back(
          "scales of E4M3FNUZ are for vLLM on MI300, which uses those of compressed-tensors as "
          "they are; SGLang doubles them once more there, and elsewhere the cache would use half "
          "of "
          "its range");
    if (input.calibration.kv_format.is_int8())
      notes.emplace_back(
          "of the engines that read this form transformers alone has an INT8 cache, in its "
          "versions "
          "that load KV scales (5.17, 5.23)");
    if (const auto note = ignored_layers_note(input.calibration)) notes.push_back(*note);
    return notes;
  }
};

/// Group of the attention modules with quantized queries. All have the same scheme, and vLLM needs
/// the class as the only target.
std::optional<QuantScheme> attention_scheme(const QuantPlan& plan) {
  for (const PlannedAttention& attention : plan.attention)
    if (!attention.ignored && attention.q)
      return QuantScheme{.targets = {plan.attention_class},
                         .weights = std::nullopt,
                         .input_activations = attention.q,
                         .format = CompressionFormat::kDense};
  return std::nullopt;
}

/// Number of groups that begin before the first attention module, in the order of the model's
/// modules: an attention module comes before its Linears.
std::ptrdiff_t groups_before_attention(const QuantPlan& plan) {
  const auto first = std::ranges::find(plan.attention, false, &PlannedAttention::ignored);
  const int64_t layer = first == plan.attention.end() ? 0 : first->layer;
  size_t count = 0;
  for (const PlannedLinear& linear : plan.linears)
    if (linear.is_embedding || (linear.layer >= 0 && linear.layer < layer))
      count = std::max(count, linear.group + 1);
  return static_cast<std::ptrdiff_t>(count);
}

/// Format of all weights, or the word for several.
std::string format_word(const QuantPlan& plan) {
  std::string word = name_of(CompressionFormat::kDense);
  for (const QuantScheme& group : plan.groups) {
    const std::string own = name_of(format_of(group));
    if (own == name_of(CompressionFormat::kDense) || own == word) continue;
    if (word != name_of(CompressionFormat::kDense)) return "mixed-precision";
    word = own;
  }
  return word;
}

}  // namespace

std::unique_ptr<Writer> make_compressed_tensors_writer() {
  return std::make_unique<CompressedTensorsWriter>();
}

Json config_groups(const Calibration& calibration) {
  const QuantPlan& plan = calibration.plan;
  std::vector<QuantScheme> groups = plan.groups;
  if (const auto attention = attention_scheme(plan))
    groups.insert(groups.begin() + groups_before_attention(plan), *attention);
  Json json = Json::object();
  for (const QuantScheme& group : groups)
    json["group_" + std::to_string(json.size())] = to_json(group);
  return json;
}

Json quantization_config(const Calibration& calibration) {
  const Json groups = config_groups(calibration);
  // Without groups, TGI has to find every Linear among the modules without a scheme; other engines,
  // where this was tried, then load as they do without the entry. Source: TGI db931fcf,
  // `CompressedTensorsLoader`.
  std::vector<std::string> ignore = calibration.plan.ignore;
  if (groups.empty() && std::ranges::find(ignore, "Linear") == ignore.end())
    ignore.emplace_back("Linear");
  return {{"config_groups", groups},
          {"format", format_word(calibration.plan)},
          {"global_compression_ratio", nullptr},
          {"ignore", ignore},
          {"kv_cache_scheme", calibration.layers.empty() ? Json() : to_json(calibration.kv_args)},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"sparsity_config", Json::object()},
          {"transform_config", Json::object()},
          {"version", kCompressedTensorsVersion}};
}

}  // namespace kvcal
