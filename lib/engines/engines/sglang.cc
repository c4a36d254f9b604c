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
          .absent = Absent::kDuplicateKeyOfZero,
          .dialect = FnuzRule::kDoubledOnRocm};
}

MethodRules sglang_compressed_tensors() {
  MethodRules rules = sglang_base("compressed-tensors", CacheSwitch::kAcceptedScheme);
  rules.config = {{.key = "config_groups", .accepted = {"an object"}, .may_lack = true},
                  {.key = "config_groups.*", .accepted = {"a group with weights"}},
                  {.key = "ignore",
                   .accepted = {"a list of patterns", "a text", "an object"},
                   .may_lack = true},
                  kSparsity,
                  {.key = "kv_cache_scheme", .accepted = {"an object", "null"}, .may_lack = true}};
  rules.scheme = {{.key = "type", .accepted = {"\"float\""}},
                  {.key = "num_bits", .accepted = {"8"}},
                  {.key = "strategy", .accepted = {"\"tensor\""}},
                  {.key = "symmetric", .accepted = {"something"}, .may_lack = true},
                  {.key = "dynamic", .accepted = {"nothing"}, .may_lack = true}};
  rules.parts = {.names = PartNames::kEnds, .compares_experts = true};
  return rules;
}

/// Source: SGLang 0.5.23, `ModelConfig._parse_quant_hf_config` and `_parse_modelopt_quant_config`,
/// BASE_QUANTIZATION_METHODS on CUDA. MIXED_PRECISION without NVFP4 layers.
ConfigReading sglang_reading() {
  return {.quant_file = QuantFile::kWithoutConfig,
          .needs_method = true,
          .refuses_auto_type = true,
          .config = {{.key = "quant_algo", .accepted = {"a text"}, .may_lack = true},
                     {.key = "quant_method", .accepted = {"a word"}, .may_lack = true}},
          .file = {{.key = "producer", .accepted = {"an object"}, .may_lack = true},
                   {.key = "producer.name", .accepted = {"a text"}, .may_lack = true},
                   {.key = "quantization.quant_algo",
                    .accepted = {"a text", "nothing", "a list", "an object"},
                    .may_lack = true}},
          .model = {{.key = "text_config",
                     .accepted = {"an object with num_attention_heads"},
                     .may_lack = true},
                    {.key = "architectures", .accepted = {"a list of classes of transformers"}}},
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

}  // namespace

EngineRules sglang_engine(std::string_view) {
  MethodRules modelopt = sglang_base("modelopt*", CacheSwitch::kModelOptLayout);
  modelopt.config = {{.key = "quant_algo",
                      .accepted = {"\"FP8\"", "\"NVFP4\"", "\"W4A16_NVFP4\"", "null"},
                      .may_lack = true},
                     {.key = "exclude_modules",
                      .accepted = {"nothing", "a list", "a text", "an object"},
                      .may_lack = true},
                     {.key = "ignore",
                      .accepted = {"nothing", "a list", "a text", "an object"},
                      .may_lack = true}};
  // Source: SGLang 0.5.23, quantization/utils.py, `is_layer_skipped`, quark/utils.py and
  // compressed_tensors/utils.py, `should_ignore_layer`.
  modelopt.parts = {.names = PartNames::kPaths, .by_model = false};
  modelopt.needs_algorithm = true;
  modelopt.needs_cache_config = true;
  MethodRules quark = sglang_base("quark", CacheSwitch::kNever);
  quark.config = kQuarkChecks;
  quark.config.insert(
      quark.config.end(),
      {{.key = "quant_method", .accepted = {"\"quark\""}},
       {.key = "global_quant_config", .accepted = {"an object", "null"}, .may_lack = true},
       {.key = "layer_type_quant_config", .accepted = {"a list", "a text", "an object"}}});
  MethodRules fp8 = sglang_base("fp8", CacheSwitch::kCacheQuantAlgo);
  fp8.config = kFp8Checks;
  fp8.parts = {.names = PartNames::kPaths, .by_model = false};
  // Source: SGLang 0.5.23, model_loader/loader.py, `_get_quantization_config`.
  quark.parts = {.names = PartNames::kExpressions,
                 .compared = {"up_proj", "kv_a_proj"},
                 .prefers_whole = true};
  return {
      .title = "SGLang",
      .source =
          "srt/model_loader/weight_utils.py, srt/layers/quantization/{kv_cache,fp8,"
          "modelopt_quant}.py, srt/mem_cache/kv_cache_dtype.py, srt/models/llama.py",
      .reading = sglang_reading(),
      .run_dtype = {.refuses_float64 = true},
      .unknown = Unknown::kDroppedWithWarning,
      .unplaced = Unknown::kDroppedWithWarning,
      .command = "python3 -m sglang.launch_server --model-path",
      .fp8_argument = "--kv-cache-dtype fp8_e4m3",
      .refused_caches = {"float16"},
      .format = "compressed-tensors",
      .methods = {sglang_compressed_tensors(), modelopt, fp8, quark},
      .otherwise = {.method = "*", .fp8_name = "fp8_e4m3", .warns_of_ones = true},
      .scales_file = {.is_read = true,
                      .argument = "--quantization-param-path",
                      .conflicts_with_parameters = true},
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
  };
}

}  // namespace kvcal
