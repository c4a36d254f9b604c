#include "export/layer_scales.h"
#include "export/writer.h"

namespace kvcal {
namespace {

/// The releases whose layouts these are (docs/formats.md): the second has a map of the layers with
/// a quantized cache, where others keep 16 bits.
constexpr std::string_view kVersion = "0.47.0", kLayersVersion = "0.48.0rc1";

/// ModelOpt's blocks keep the dimensions of a reshaped weight. Source: vLLM 0.32,
/// `ModelOptLinearMethod`'s loader of FP8_PB_WO.
constexpr WeightScaleNames kWeights{.title = "ModelOpt",
                                    .scalars_have_no_dims = true,
                                    .rows_have_one_dim = true,
                                    .blocks_have_four_dims = true};

/// ModelOpt's word for the cache. Scales of NVFP4 are the same numbers, amax / 448. Source:
/// ModelOpt 0.47 unified_export_hf.py, kv_cache_max_bound; vLLM 0.32 takes them as NVFP4's global
/// scales, so its block scales are at most 448 / 6 for observed values.
std::string_view cache_word(const ExportInput& input) {
  if (input.calibration.kv_format.is_int8()) return "INT8";
  return input.is_nvfp4 ? "NVFP4" : "FP8";
}

/// Source: vLLM 0.32 `get_cache_scale_mapper`, SGLang 0.5.23 `maybe_remap_kv_scale_name`.
bool is_placed(std::string_view module) {
  return module.ends_with(".self_attn") || module.ends_with(".mixer");
}

/// ModelOpt's algorithm for the plan's weights. Throws Error where there is none. Source: vLLM 0.32
/// `LINEAR_ALGOS`.
std::string algorithm_of(const QuantPlan& plan) {
  const LinearScheme scheme = one_scheme(plan, kWeights.title);
  if (scheme.strategy == Strategy::kTensor && scheme.input == InputQuantization::kStatic)
    return "FP8";
  if (scheme.strategy == Strategy::kChannel && scheme.input == InputQuantization::kDynamicToken)
    return "FP8_PER_CHANNEL_PER_TOKEN";
  if (scheme.strategy == Strategy::kBlock && scheme.input == InputQuantization::kDynamicGroup &&
      scheme.block_rows == 128 && scheme.block_columns == 128 && scheme.group == 128)
    return "FP8_PB_WO";
  fail("ModelOpt has no word for ", to_text(scheme),
       "; expected FP8 (a scale a weight, static inputs), FP8_DYNAMIC or FP8_BLOCK");
}

/// Algorithm and exceptions. Readers need an algorithm even without FP8 weights (vLLM refuses
/// null); "*" then keeps every Linear 16-bit. Source: vLLM 0.32
/// `ModelOptQuantConfigBase.from_config`, SGLang 0.5.23 `ModelOptFp8Config.from_config`.
struct Algorithm {
  Json name = "FP8";
  std::vector<std::string> excluded{"*"};
};

/// An INT8 cache is TensorRT-LLM's alone, which has it beside unquantized projections: null, as
/// ModelOpt writes it where nothing but the cache is quantized. Source: TensorRT-LLM
/// (docs/formats.md), `Attention`'s checks of kv_cache_quant_algo INT8.
Algorithm weight_algorithm(const Calibration& calibration) {
  const QuantPlan& plan = calibration.plan;
  if (calibration.kv_format.is_int8() && !calibration.layers.empty()) return {nullptr, {}};
  if (!plan.quantizes_weights()) return {};
  return {algorithm_of(plan), excluded_modules(plan)};
}

/// Source: ModelOpt 0.47 convert_hf_config.py, which has arguments for FP8 alone.
Json cache_scheme(const ExportInput& input) {
  if (input.is_nvfp4) return cache_word(input);
  const std::string_view type = input.calibration.kv_format.is_int8() ? "int" : "float";
  return {{"dynamic", false}, {"num_bits", 8}, {"type", type}};
}

bool leaves_layers_out(const ExportInput& input) {
  return !ignored_modules(input.calibration).empty();
}

/// Readers recognize ModelOpt's checkpoints only by this name.
Json producer(const ExportInput& input) {
  return {{"name", "modelopt"}, {"version", leaves_layers_out(input) ? kLayersVersion : kVersion}};
}

/// Adds the map of layers with a quantized cache, where some keep 16 bits. Source: ModelOpt
/// 0.48.0rc1 export/quant_utils.py, get_quant_config, and convert_hf_config.py, which hands both
/// keys on to config.json.
void add_quantized_layers(const ExportInput& input, Json& config) {
  if (!leaves_layers_out(input)) return;
  Json layers = Json::object();
  for (const AttentionCalibration& layer : input.calibration.layers)
    if (!layer.ignored) layers[layer.module] = {{"quant_algo", cache_word(input)}};
  config[std::string(kQuantizedCachesKey)] = std::move(layers);
  config[std::string(kCacheSchemaKey)] = 1;
}

/// quantization_config of config.json.
Json flat_config(const ExportInput& input) {
  const Calibration& calibration = input.calibration;
  const Algorithm algorithm = weight_algorithm(calibration);
  Json config = {{"ignore", algorithm.excluded},
                 {"producer", producer(input)},
                 {"quant_algo", algorithm.name},
                 {"quant_method", "modelopt"}};
  if (!calibration.layers.empty()) config["kv_cache_scheme"] = cache_scheme(input);
  add_quantized_layers(input, config);
  return config;
}

/// Content of hf_quant_config.json, which TensorRT-LLM reads first; it keeps kv_cache_quant_algo
/// for excluded modules. Source: TensorRT-LLM `apply_quant_config_exclude_modules`.
Json nested_config(const ExportInput& input) {
  const Calibration& calibration = input.calibration;
  const Algorithm algorithm = weight_algorithm(calibration);
  Json config = {
      {"producer", producer(input)},
      {"quantization",
       {{"quant_algo", algorithm.name},
        {"kv_cache_quant_algo", calibration.layers.empty() ? Json() : Json(cache_word(input))},
        {"exclude_modules", algorithm.excluded}}}};
  add_quantized_layers(input, config["quantization"]);
  return config;
}

/// The source's config with the cache added, in its own keys.
Json with_cache(Json config, const ExportInput& input) {
  if (config.is_null() || input.calibration.layers.empty()) return config;
  const auto nested = config.find("quantization");
  const bool is_nested = nested != config.end() && nested->is_object();
  if (is_nested)
    (*nested)["kv_cache_quant_algo"] = cache_word(input);
  else
    config["kv_cache_scheme"] = cache_scheme(input);
  add_quantized_layers(input, is_nested ? *nested : config);
  return config;
}

constexpr const char* kNvfp4Note =
    "k_scale and v_scale are amax / 448, as in ModelOpt's Hugging Face export, which vLLM and "
    "TensorRT-LLM use as they are, with room for six times the amax; ModelOpt's Megatron export "
    "and AutoRound have amax / 2688, and SGLang multiplies by 6 on SM100";

constexpr const char* kInt8Note =
    "TensorRT-LLM alone reads an INT8 cache of ModelOpt's form: with TRTLLM_LOAD_KV_SCALES=1, "
    "without block reuse and chunked prefill; it has one scale for K and V of a layer, the larger "
    "one";

/// Throws Error for other schemes of experts: vLLM runs ModelOpt's experts with one scale per
/// weight, and silently misreads others whose shapes fit. Source: vLLM 0.32 `ModelOptFp8MoEMethod`,
/// tried.
void check_experts(const QuantPlan& plan) {
  if (algorithm_of(plan) == "FP8") return;
  for (const PlannedLinear& linear : plan.linears)
    if (linear.module.find(".experts.") != std::string::npos)
      fail(linear.module,
           ": readers of ModelOpt's checkpoints run experts with one scale a weight "
           "and static inputs alone; use compressed-tensors");
}

class ModelOptWriter : public ScalarWriter {
 public:
  ModelOptWriter() : ScalarWriter("modelopt", kWeights) {}

  void check(const ExportInput& input) const override {
    ScalarWriter::check(input);
    if (input.calibration.kv_format.is_int8() &&
        (input.kept || input.calibration.plan.quantizes_weights()))
      fail("TensorRT-LLM has an INT8 cache beside 16-bit weights alone");
    if (input.calibration.plan.quantizes_weights()) check_experts(input.calibration.plan);
    for (const AttentionCalibration& layer : input.calibration.layers)
      if (!layer.ignored && !is_placed(layer.module))
        fail(layer.module, ": vLLM and SGLang have no place for ", names(input).k,
             " of modules not named self_attn or mixer; use compressed-tensors");
  }

  FormatParts parts(const ExportInput& input) const override {
    FormatParts parts = ScalarWriter::parts(input);
    if (input.kept) {
      keep_quantization({.format = input.kept->format,
                         .config = with_cache(input.kept->config, input),
                         .modelopt_file = with_cache(input.kept->modelopt_file, input)},
                        parts);
    } else {
      parts.config["quantization_config"] = flat_config(input);
      parts.files.emplace(kModelOptFileName, dump_json(nested_config(input), 4));
    }
    return parts;
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes = ScalarWriter::notes(input);
    // Tested: the error of logits exceeds their variation.
    if (input.calibration.plan.quantizes_weights())
      notes.emplace_back(
          "transformers 5.17 drops the scales of ModelOpt's FP8 weights and computes with their "
          "codes; it loads compressed-tensors");
    if (input.is_nvfp4) notes.emplace_back(kNvfp4Note);
    if (input.calibration.kv_format.is_int8()) notes.emplace_back(kInt8Note);
    return notes;
  }

 private:
  /// ModelOpt has no other names of scales where Q, K and V are one Linear (Phi-3). Source:
  /// ModelOpt 0.47 `postprocess_state_dict`.
  const KvScaleNames& names(const ExportInput&) const override {
    return kv_scale_format("modelopt");
  }
};

}  // namespace

std::unique_ptr<Writer> make_modelopt_writer() {
  return std::make_unique<ModelOptWriter>();
}

}  // namespace kvcal
