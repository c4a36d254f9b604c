#include "engines/engine_rules.h"

namespace kvcal {
namespace {

using enum ScaleSide;

/// Source: SGLang 0.5.23, `maybe_remap_kv_scale_name`.
std::vector<NameRule> sglang_names() {
  return {{".k_scale", kKey},
          {".v_scale", kValue},
          {".kv_scale", kKey},
          {".k_proj.k_scale", kKey, true},
          {".v_proj.v_scale", kValue, true},
          {".k_proj.output_scale", kKey},
          {".v_proj.output_scale", kValue}};
}

/// Source: SGLang 0.5.23, `BaseKVCacheMethod` and `default_weight_loader`.
MethodRules sglang_base(std::string_view method, CacheSwitch cache) {
  return {.method = method,
          .cache = cache,
          .fp8_name = "fp8_e4m3",
          .names = sglang_names(),
          .absent = Absent::kDuplicateKey,
          .doubles_on_rocm = true,
          .zero_is_absent = true};
}

MethodRules sglang_compressed_tensors() {
  MethodRules rules = sglang_base("compressed-tensors", CacheSwitch::kAcceptedScheme);
  rules.config = {{.key = "config_groups", .accepted = {"an object"}, .may_lack = true},
                  {.key = "config_groups.*", .accepted = {"a group with weights"}},
                  {.key = "ignore",
                   .accepted = {"a list of patterns", "a text", "an object"},
                   .may_lack = true},
                  {.key = "kv_cache_scheme", .accepted = {"an object", "null"}, .may_lack = true}};
  rules.scheme = {{.key = "type", .accepted = {"\"float\""}},
                  {.key = "num_bits", .accepted = {"8"}},
                  {.key = "strategy", .accepted = {"\"tensor\""}},
                  {.key = "symmetric", .accepted = {"true"}, .may_lack = true},
                  {.key = "dynamic", .accepted = {"false", "null"}, .may_lack = true}};
  return rules;
}

/// Source: SGLang 0.5.23, `ModelConfig._parse_quant_hf_config` and `_parse_modelopt_quant_config`,
/// BASE_QUANTIZATION_METHODS on CUDA. MIXED_PRECISION without NVFP4 layers.
ConfigReading sglang_reading() {
  return {.quant_file = QuantFile::kWithoutConfig,
          .needs_method = true,
          .refuses_auto_type = true,
          .config = {{.key = "quant_algo", .accepted = {"a text"}, .may_lack = true}},
          .file = {{.key = "producer", .accepted = {"an object"}, .may_lack = true},
                   {.key = "quantization.quant_algo",
                    .accepted = {"a text", "null"},
                    .may_lack = true}},
          .refuses_bare_text_config = true,
          .reads_nested = false,
          .algorithms = {{"FP8", "modelopt_fp8"},
                         {"NVFP4", "modelopt_fp4"},
                         {"W4A16_NVFP4", "modelopt_fp4"},
                         {"MIXED_PRECISION", "w4afp8"},
                         {"MXFP8", "mxfp8"}},
          .algorithm_has_case = true,
          .other_methods = {"mxfp8",
                            "minimax_m3_nvfp4",
                            "blockwise_int8",
                            "nvfp4_online",
                            "w8a8_int8",
                            "w8a8_fp8",
                            "awq",
                            "awq_marlin",
                            "bitsandbytes",
                            "gguf",
                            "gptq_marlin",
                            "gptq",
                            "moe_wna16",
                            "w4afp8",
                            "petit_nvfp4",
                            "quark_mxfp4",
                            "auto-round",
                            "auto-round-int8",
                            "modelslim",
                            "quark_int4fp8_moe",
                            "humming",
                            "mxfp_w4a8",
                            "mxfp4"}};
}

/// Source: SGLang 0.5.23, the model files that define load_kv_cache_scales, which loaded the file
/// (tests/fixtures/engines) or, from mimo on, were read.
const ModelTypes kReadsScalesFile{
    "arcee", "glm4",  "internlm3", "iquestcoder",   "llama",   "ministral3", "mistral", "opt",
    "phi3",  "qwen2", "qwen3",     "mimo_v2_flash", "apertus", "mimo",       "solar"};

const std::vector<std::string_view> kProjections{"_proj.k_scale", "_proj.v_scale",
                                                 "_proj.output_scale"};

constexpr std::string_view kNoImplementation =
    "SGLang 0.5.23 has no implementation, and its Transformers backend does not run the model";
constexpr std::string_view kStops = "its loader stops at the names of the scales (KeyError)";
constexpr std::string_view kBackendStops =
    "its Transformers backend stops at the names of the scales";
constexpr std::string_view kStopsAtProjections =
    "its loader stops at scales below k_proj and v_proj (KeyError)";
constexpr std::string_view kNoParameters =
    "its attention is made without the quantization config, so no scale of a checkpoint reaches "
    "the cache, which is FP8 with 1.0";
constexpr std::string_view kNotSwitched =
    "it does not see the FP8 cache of a text model inside another one";
constexpr std::string_view kNotSwitchedAndOnes =
    "it does not see the FP8 cache of a text model inside another one, and where it is asked for "
    "its scales are 1.0";
constexpr std::string_view kNotSwitchedAndNoParameters =
    "its attention is made without the quantization config: the cache keeps 16 bits unless asked "
    "for FP8, and then its scales are 1.0";
constexpr std::string_view kNotTold =
    "its model file keeps no quantization config, so the cache keeps 16 bits unless asked for FP8, "
    "and its loader drops the scales";
constexpr std::string_view kNotSwitchedForChosen =
    "it keeps 16 bits for attention of chosen tokens (DSA) unless asked for FP8, and then reads "
    "scales of k_proj and v_proj alone";
constexpr std::string_view kFusedLatent =
    "its loader fuses q_a_proj and kv_a_proj_with_mqa, and stops at the two scales of their "
    "weights";
constexpr std::string_view kExpertsStop = "its loader stops at the experts in this form";
constexpr std::string_view kDropped = "its loader drops the scales, and the cache is FP8 with 1.0";

/// Latent attention, but not of chosen keys.
const ModelTypes kLatentOfAllKeys{"deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25"};

/// Source: SGLang 0.5.23, srt/models/*.py, each one's load_weights, run.
std::vector<Miss> sglang_misses() {
  using enum MissEffect;
  return {
      {.types = {"bamba", "biogpt", "codegen", "falcon", "flex_olmo", "flint", "glm", "glm46v",
                 "gpt_neo", "jamba", "llava", "olmo_hybrid", "phimoe", "xglm"},
       .why = kNoImplementation,
       .effect = kNoModel},
      {.types = {"aria", "aria_text", "blip-2", "cohere_compass_text", "deepseek_ocr2",
                 "deepseek_vl", "deepseek_vl_hybrid", "glmga", "granite_docling",
                 "hyperclovax_vision_v2", "instructblip", "instructblipvideo", "janus",
                 "minicpm_ocr", "moss_transcribe_diarize", "phi4_multimodal", "pp_chart2table",
                 "qianfan_ocr"},
       .why = kNoImplementation,
       .effect = kNoModel},
      {.types = {"cohere2_vision", "gemma4_unified"},
       .why = "its model file asks config.json for a key that such models do not have "
              "(AttributeError)",
       .effect = kNoModel},
      {.types = {"ernie4_5_moe", "exaone", "falcon_h1", "gemma", "gpt2", "gpt_bigcode",
                 "granitemoehybrid", "internlm2", "minicpm3", "mllama", "olmo", "olmo2", "olmo3",
                 "paddleocr_vl", "qwen2_vl", "stablelm"},
       .why = kStops,
       .effect = kRefused},
      {.types = {"gemma4_text", "gemma4_unified_text"},
       .why = "it asks config.json for one head size of all layers, but of a multimodal checkpoint",
       .effect = kNoModel},
      {.types = {"hunyuan_v1_dense", "hunyuan_v1_moe"},
       .why = kStopsAtProjections,
       .effect = kRefused,
       .names = kProjections},
      {.types = {"hunyuan_v1_dense", "hunyuan_v1_moe"},
       .why = kNotSwitchedAndNoParameters,
       .effect = kOnesWhenAsked},
      {.types = {"lfm2_vl"},
       .why = "its loader takes weights of 16 bits for FP8 ones",
       .effect = kRefused,
       .needs_weights = true},
      {.types = {"lfm2", "lfm2_moe", "lfm2_vl"}, .why = kNoParameters},
      {.types = {"gemma3", "kimi_k25", "llama4"},
       .why = "its loader stops at the tensor names of transformers 5",
       .effect = kRefused,
       .names = {"model.language_model."}},
      {.types = {"cwm",
                 "dots1",
                 "ernie4_5",
                 "fuyu",
                 "gpt_neox",
                 "granite4_vision",
                 "helium",
                 "hyperclovax",
                 "idefics3",
                 "internvl",
                 "jais2",
                 "llava_next",
                 "llava_onevision",
                 "ministral",
                 "mistral4",
                 "nanochat",
                 "nemotron",
                 "seed_oss",
                 "smollm3",
                 "smolvlm",
                 "solar_open",
                 "vaultgemma",
                 "youtu"},
       .why = kBackendStops,
       .effect = kRefused},
      {.types = {"aya_vision", "cohere_compass", "emu3", "exaone4_5", "fast_vlm", "got_ocr2",
                 "hunyuan_vl", "idefics2", "lighton_ocr", "llava_next_video", "ovis2",
                 "perception_lm", "video_llama_3", "video_llava", "vipllava"},
       .why = kBackendStops,
       .effect = kRefused},
      {.types = {"gemma3n", "qwen2_5_vl"},
       .why = kStopsAtProjections,
       .effect = kRefused,
       .names = kProjections},
      {.types = {"glm4v", "glm_ocr", "qwen2_5_vl"},
       .why = kNotSwitchedAndOnes,
       .effect = kOnesWhenAsked},
      {.types = {"minicpmv4_6", "minicpmv4_7", "mistral3"},
       .why = kNotSwitched,
       .effect = kByRulesWhenAsked,
       .methods = {"compressed-tensors", "modelopt*"}},
      {.types = {"gemma3n_text"},
       .why = kDropped,
       .methods = {"modelopt*", "quark"},
       .names = kProjections},
      {.types = {"minicpmv4_6", "minicpmv4_7", "minimax_m2", "qwen3_5", "qwen3_5_moe",
                 "qwen3_5_text"},
       .why = kDropped,
       .names = {"_proj.output_scale"}},
      {.types = {"granite", "granite_swa", "olmoe"},
       .why = kStops,
       .effect = kRefused,
       .names = {".k_scale", ".v_scale", ".output_scale"}},
      {.types = {"cohere", "cohere2", "gemma2", "granitemoe", "granitemoe_swa", "granitemoeshared",
                 "starcoder2"},
       .why = kStopsAtProjections,
       .effect = kRefused,
       .names = kProjections,
       .format = "compressed-tensors"},
      {.types = {"mixtral"},
       .why = kStopsAtProjections,
       .effect = kRefused,
       .methods = {"compressed-tensors"},
       .names = kProjections},
      {.types = {"glm4_moe_lite"},
       .why = kFusedLatent,
       .effect = kRefused,
       .settings = {{.key = "q_lora_rank"}},
       .needs_weights = true},
      {.types = {"mimo_v2_flash", "opt"},
       .why = kStopsAtProjections,
       .effect = kRefused,
       .names = kProjections,
       .format = "scales-json"},
      {.types = {"mimo_v2_flash", "opt"}, .why = kDropped, .format = "scales-json"},
      {.types = {"gptj"},
       .why = "its loader asks the quantization config for get_cache_scale, which it does not have "
              "(AttributeError)",
       .effect = kRefused,
       .methods = {"fp8", "modelopt*", "quark"},
       .format = "compressed-tensors"},
      {.types = {"laguna"}, .why = kNotTold, .effect = kOnesWhenAsked},
      {.types = {"dbrx"},
       .why = "its loader of experts stops at the scales of FP8 weights (KeyError)",
       .effect = kRefused,
       .needs_weights = true},
      {.types = {"afmoe", "cohere2_moe", "glm4_moe_lite", "granitemoe", "granitemoe_swa",
                 "granitemoeshared", "mixtral", "persimmon"},
       .why = kDropped},
      {.types = {"starcoder2"},
       .why = kNoParameters,
       .effect = kOnesWhenAsked,
       .names = kPlainScales},
      {.types = {"deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2",
                 "kimi_k25"},
       .why = kFusedLatent,
       .effect = kRefused,
       .methods = {"compressed-tensors"},
       .settings = {{.key = "q_lora_rank"}},
       .needs_weights = true},
      {.types = {"deepseek_v32", "glm_moe_dsa"},
       .why = kNotSwitchedForChosen,
       .effect = kByRulesWhenAsked,
       .names = {"_proj.k_scale", "_proj.v_scale"}},
      {.types = {"deepseek_v32", "glm_moe_dsa"},
       .why = kNotSwitchedForChosen,
       .effect = kOnesWhenAsked,
       .format = "modelopt"},
      {.types = kLatentOfAllKeys, .effect = kByRules, .names = {"_proj.k_scale", "_proj.v_scale"}},
      {.types = kLatentOfAllKeys, .why = kDropped, .format = "modelopt"},
      {.types = {"glm4", "qwen2"}, .why = kDropped, .format = "scales-json"},
      {.types = {"qwen3"}, .why = kNoParameters, .lacks_parameters = true, .format = "scales-json"},
      {.types = {"gpt_oss"},
       .why = kNoParameters,
       .methods = {"modelopt*"},
       .lacks_parameters = true,
       .needs_weights = true},
      {.types = {"gpt_oss"}, .why = kExpertsStop, .effect = kRefused, .methods = {"modelopt*"}},
      {.types = {"gpt_oss"},
       .why = kExpertsStop,
       .effect = kRefused,
       .methods = {"quark"},
       .needs_weights = true},
      {.types = {"exaone_moe", "glm4_moe", "glm4v_moe", "gpt_oss", "hy_v3", "llama4", "llama4_text",
                 "mellum", "phi", "qwen2_moe", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe"},
       .why = kNoParameters,
       .lacks_parameters = true},
      {.types = {"qwen3_next"},
       .why = "its loader stops at the shape of FP8 weights' scales (AssertionError)",
       .effect = kRefused,
       .needs_weights = true},
      {.types = {"qwen3_next"},
       .effect = kByRules,
       .methods = {"modelopt*"},
       .names = {"_proj.k_scale", "_proj.v_scale"}},
      {.types = {"qwen3_next"},
       .why = "its loader takes the scales for others that must be 1.0 (AssertionError)",
       .effect = kRefused},
  };
}

/// Tried (tests/fixtures/engines/drafts_sglang.json), with checkpoints of 16-bit weights.
std::vector<DraftReading> sglang_drafts() {
  return {
      {.types = {"glm4_moe"},
       .method = "compressed-tensors",
       .dropped = {".{}_scale", ".{}_proj.{}_scale", ".attn.{}_scale", ".mla_attn.{}_scale",
                   ".mla_attn.mla_attn.{}_scale", ".qkv_proj.{}_scale", ".{}_proj.output_scale"}},
      {.types = {"deepseek_v3"},
       .method = "compressed-tensors",
       .loaded = {".{}_proj.{}_scale"},
       .dropped = {".{}_scale", ".attn.{}_scale", ".mla_attn.{}_scale",
                   ".mla_attn.mla_attn.{}_scale", ".qkv_proj.{}_scale", ".{}_proj.output_scale"}},
      {.types = {"qwen3_5"},
       .method = "compressed-tensors",
       .loaded = {".{}_scale", ".{}_proj.{}_scale", ".attn.{}_scale"},
       .dropped = {".mla_attn.{}_scale", ".mla_attn.mla_attn.{}_scale", ".qkv_proj.{}_scale",
                   ".{}_proj.output_scale"}},
      {.types = {"qwen3_next"},
       .method = "compressed-tensors",
       .loaded = {".{}_proj.{}_scale", ".attn.{}_scale"},
       .refused = {".{}_scale", ".mla_attn.{}_scale", ".mla_attn.mla_attn.{}_scale",
                   ".qkv_proj.{}_scale", ".{}_proj.output_scale"}}};
}

}  // namespace

EngineRules sglang_engine() {
  MethodRules modelopt = sglang_base("modelopt*", CacheSwitch::kModelOptCache);
  modelopt.needs_algorithm = true;
  modelopt.needs_cache_config = true;
  MethodRules quark = sglang_base("quark", CacheSwitch::kNever);
  quark.config = {{.key = "export", .accepted = {"an object"}},
                  {.key = "export.kv_cache_group", .accepted = {"a list"}, .may_lack = true},
                  {.key = "quant_method", .accepted = {"\"quark\""}}};
  MethodRules fp8 = sglang_base("fp8", CacheSwitch::kCacheQuantAlgo);
  fp8.config = {kActivationScheme};
  return {.title = "SGLang",
          .versions = {"0.5.23"},
          .source =
              "srt/model_loader/weight_utils.py, srt/layers/quantization/{kv_cache,fp8,"
              "modelopt_quant}.py, srt/mem_cache/kv_cache_dtype.py, srt/models/llama.py",
          .reading = sglang_reading(),
          .run_dtype = {.refuses_float64 = true},
          .unknown = Unknown::kDroppedWithWarning,
          .unplaced = Unknown::kDroppedWithWarning,
          .command = "python3 -m sglang.launch_server --model-path",
          .fp8_argument = "--kv-cache-dtype fp8_e4m3",
          .format = "compressed-tensors",
          .methods = {sglang_compressed_tensors(), modelopt, fp8, quark},
          .otherwise = {.method = "*", .fp8_name = "fp8_e4m3", .warns_of_ones = true},
          .scales_file = {.is_read = true,
                          .argument = "--quantization-param-path",
                          .model_types = kReadsScalesFile,
                          .conflicts_with_parameters = true},
          .tried = with_wrappers_but({}, types_run_but({})),
          .misses = sglang_misses(),
          .formats =
              {
                  {.format = "compressed-tensors",
                   .method = "compressed-tensors",
                   .names = kPlainScales,
                   .note = "per tensor"},
                  {.format = "modelopt",
                   .method = "modelopt",
                   .names = {".k_proj.k_scale", ".v_proj.v_scale"},
                   .note = "per tensor"},
                  {.format = "quark",
                   .method = "quark",
                   .names = {".k_proj.output_scale", ".v_proj.output_scale"},
                   .note = "needs --kv-cache-dtype fp8_e4m3; per tensor"},
                  {.format = "fp8",
                   .method = "fp8",
                   .names = kPlainScales,
                   .note = "needs --kv-cache-dtype fp8_e4m3; per tensor"},
                  {.format = "scales-json",
                   .note = "--quantization-param-path with --kv-cache-dtype fp8_e4m3; some of its "
                           "attention backends fail on the scales",
                   .is_scales_file = true},
                  {.format = "tgi", .otherwise = Reads::kNo, .note = "drops kv_scale"},
              },
          .drafts = sglang_drafts()};
}

}  // namespace kvcal
