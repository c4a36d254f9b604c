#include "engines/engine_rules.h"

namespace kvcal {

namespace {

using enum ScaleSide;
using Names = std::vector<NameRule>;

/// Source: vLLM 0.32, `CompressedTensorsKVCacheMethod.validate_kv_cache_scheme`.
const std::vector<KeyCheck> kVllmScheme{
    {.key = "type", .accepted = {"\"float\""}},
    {.key = "num_bits", .accepted = {"8"}},
    {.key = "strategy", .accepted = {"\"tensor\"", "\"attn_head\""}},
    {.key = "symmetric", .accepted = {"something"}}};

Names joined(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

/// The names that its loader maps to scales, whatever the quant_method. Source: vLLM 0.32,
/// `QuantizationConfig.get_cache_scale_mapper` and `maybe_remap_kv_scale_name`.
Names vllm_names() {
  return {{".k_scale", kKey},
          {".v_scale", kValue},
          {".q_scale", kTaken},
          {".kv_scale", kKey},
          {".attn.k_scale", kKey},
          {".attn.v_scale", kValue},
          {".attn.q_scale", kTaken},
          {".k_proj.k_scale", kKey, true},
          {".v_proj.v_scale", kValue, true},
          {".v_proj.k_scale", kKey, true},
          {".k_proj.v_scale", kValue, true},
          {".qkv_proj.k_scale", kKey, true},
          {".qkv_proj.v_scale", kValue, true},
          {".qkqkv_proj.k_scale", kKey, true},
          {".qkqkv_proj.v_scale", kValue, true},
          {".k_cache.scale", kKey, true},
          {".v_cache.scale", kValue, true},
          {".q.scale", kTaken, true}};
}

const Names kZeroPoints{
    {".k_zero_point", kTaken}, {".v_zero_point", kTaken}, {".q_zero_point", kTaken}};

// Source: vLLM 0.32, `Fp8Config` and `QuarkConfig`, `get_cache_scale_mapper`.
const Names kOutputScales{{".k_proj.output_scale", kKey},
                          {".v_proj.output_scale", kValue},
                          {".q_proj.output_scale", kTaken},
                          {".prob_output_scale", kTaken}};

/// Source: vLLM 0.33, quant_utils.py, `is_layer_skipped`; config_utils.py,
/// `find_matching_patterns`.
FusedParts vllm_parts(PartNames names) {
  return {.names = names, .prefers_whole = true, .compares_experts = true};
}

MethodRules vllm_compressed_tensors() {
  return {
      .method = "compressed-tensors",
      .cache = CacheSwitch::kScheme,
      .names = joined(vllm_names(), kZeroPoints),
      .config =
          {{.key = "config_groups", .accepted = {"an object"}, .may_lack = true},
           {.key = "config_groups.*", .accepted = {"a group with weights", "a group of attention"}},
           kNoColumnOrder,
           kSparsity,
           {.key = "transform_config",
            .accepted = {"nothing", "an object with config_groups"},
            .may_lack = true},
           // Other widths need a package of kernels that vLLM does not install.
           {.key = "config_groups.*.weights.num_bits", .accepted = {"4", "8"}, .may_lack = true},
           {.key = "ignore",
            .accepted = {"a list of patterns", "a text", "an object"},
            .may_lack = true}},
      .scheme = kVllmScheme,
      .refuses_other_schemes = true,
      .heads = HeadScales::kCut,
      .parts = vllm_parts(PartNames::kExpressions),
      .takes_e5m2 = false};
}

/// Source: vLLM 0.32, `BaseKVCacheMethod`, which the methods fp8, quark and modelopt inherit. Its
/// parameters are made while the model's dtype is torch's default, so they are of that dtype.
MethodRules vllm_base(std::string_view method, Names names) {
  return {.method = method,
          .names = std::move(names),
          .absent = Absent::kDuplicateKey,
          .warns_of_ones = true,
          .rounding = Rounding::kToModel,
          .dialect = FnuzRule::kDoubledOnRocm,
          .ones = OnesFor::kSixteenBits,
          .takes_e5m2 = false};
}

MethodRules vllm_modelopt() {
  MethodRules rules = vllm_base("modelopt*", vllm_names());
  rules.cache = CacheSwitch::kModelOptCache;
  rules.fp8_name = "fp8_e4m3";
  rules.takes_nvfp4 = true;
  rules.parts = vllm_parts(PartNames::kNames);
  // Source: vLLM 0.32, `ModelOptQuantConfigBase.from_config`, LINEAR_ALGOS.
  rules.config = {
      {.key = "quant_algo",
       .accepted = {"\"FP8\"", "\"FP8_PER_CHANNEL_PER_TOKEN\"", "\"FP8_PB_WO\"", "\"NVFP4\"",
                    "\"W4A16_NVFP4\"", "\"MXFP8\""},
       .ignores_case = true,
       .when = {{.key = "quantized_layers", .accepted = {"nothing"}, .may_lack = true}}},
      {.key = "exclude_modules", .accepted = {"a list"}, .may_lack = true},
      {.key = "ignore", .accepted = {"a list"}, .may_lack = true},
      {.key = "group_size", .accepted = {"null", "a number", "true or false"}, .may_lack = true},
      {.key = "quantization", .accepted = {"an object"}, .may_lack = true},
      // Of a nested configuration, which has no quant_method.
      {.key = "kv_cache_quant_algo",
       .accepted = {"a text", "null"},
       .may_lack = true,
       .when = {{.key = "quant_method", .accepted = {}, .may_lack = true}}}};
  return rules;
}

MethodRules vllm_quark() {
  MethodRules rules = vllm_base("quark", joined(vllm_names(), kOutputScales));
  rules.config = kQuarkChecks;
  rules.groups_by_pattern = true;
  rules.parts = vllm_parts(PartNames::kExpressions);
  return rules;
}

MethodRules vllm_fp8() {
  MethodRules rules = vllm_base("fp8", joined(vllm_names(), kOutputScales));
  rules.config = kFp8Checks;
  rules.parts = vllm_parts(PartNames::kNames);
  return rules;
}

/// Source: vLLM 0.32, `ModelArchConfigConvertorBase._normalize_quantization_config`,
/// `ModelConfig._verify_quantization` and QUANTIZATION_METHODS without the deprecated ones.
ConfigReading vllm_reading(std::string_view version) {
  ConfigReading reading{
      .quant_file = QuantFile::kWithoutConfig,
      .refuses_auto_type = true,
      .config = {{.key = "producer", .accepted = {"an object"}, .may_lack = true}},
      .model = {{.key = "text_config", .accepted = {"null"}, .may_lack = true},
                {.key = "architectures",
                 .accepted = {"null", "[]", "a list of model classes"},
                 .may_lack = true}},
      .needs_producer = true,
      .algorithms = {{"FP8", "modelopt"},
                     {"FP8_PER_CHANNEL_PER_TOKEN", "modelopt"},
                     {"FP8_PB_WO", "modelopt"},
                     {"NVFP4", "modelopt_fp4"}},
      .refuses_other_algorithms = true,
      .aliases = {{"compressed_tensors", "compressed-tensors"}},
      .other_methods = {"awq",
                        "auto_awq",
                        "auto_gptq",
                        "gptq",
                        "gptq_marlin",
                        "awq_marlin",
                        "humming",
                        "experts_int8",
                        "moe_wna16",
                        "torchao",
                        "inc",
                        "mxfp4",
                        "gpt_oss_mxfp4",
                        "deepseek_v4_fp8",
                        "online",
                        "fp8_per_tensor",
                        "fp8_per_block",
                        "fp8_per_channel",
                        "int8_per_channel_weight_only",
                        "nvfp4_per_token",
                        "mxfp8"}};
  if (comes_before("0.32", version))
    reading.algorithms.push_back({"MIXED_PRECISION", "modelopt_mixed"});
  return reading;
}

std::vector<EngineFormat> vllm_formats() {
  return {
      {.format = "compressed-tensors",
       .method = "compressed-tensors",
       .names = kPlainScales,
       .note = "per tensor and per head"},
      // Source: vLLM 0.32, Fp8Config: the same names, for every Attention and no
      // MLAAttention.
      {.format = "fp8",
       .method = "fp8",
       .names = kPlainScales,
       .note = "needs --kv-cache-dtype fp8; per tensor"},
      {.format = "modelopt",
       .method = "modelopt",
       .names = {".k_proj.k_scale", ".v_proj.v_scale"},
       .note = "per tensor"},
      {.format = "quark",
       .method = "quark",
       .names = {".k_proj.output_scale", ".v_proj.output_scale"},
       .note = "needs --kv-cache-dtype fp8; per tensor"},
      // Tried: without a quantization_config its loader stops at self_attn.kv_scale.
      {.format = "tgi", .otherwise = Reads::kNo, .note = "its loader stops at the name kv_scale"},
      {.format = "scales-json", .otherwise = Reads::kNo, .note = "removed in 2025-01"}};
}

}  // namespace

/// Of vLLM 0.32 and 0.33, and of what has its code.
EngineRules vllm_engine(std::string_view version) {
  return {.title = "vLLM",
          .source =
              "model_loader/weight_utils.py, layers/quantization/{kv_cache,base_config,fp8,"
              "modelopt}.py, quark/quark.py, compressed_tensors/compressed_tensors.py; run",
          .reading = vllm_reading(version),
          // Source: vLLM 0.32, `DefaultModelLoader._prepare_weights`, whose load format is auto.
          .files = {.counts_digits = true, .prefers = "consolidated"},
          // Source: vLLM 0.32, `_resolve_auto_dtype` on a GPU with bfloat16.
          // Source: vLLM 0.33, `VllmConfig._reject_mismatched_float_kv_cache`.
          .run_dtype = {.takes_float32 = false,
                        .refuse_float16 = {"gemma2", "gemma3", "gemma3_text", "glm4"},
                        .refuses_other_half = comes_before("0.32", version),
                        .widest = true},
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kRefused,
          .takes_sharded_heads = true,
          // Source: vLLM 0.33, models/qwen2.py:352, `Qwen2Model`.
          .one_window_types = {"qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl",
                               "qwen2_5_vl_text", "qwen2_5_omni_text"},
          .command = "vllm serve",
          .fp8_argument = "--kv-cache-dtype fp8",
          // Source: vLLM 0.33 (and 0.32, Aphrodite 0.24.1) `Attention.__init__`, whose layers
          // compare their index with each word of the list; words are apart by spaces, and "0,1" is
          // one that fits none.
          .skip_argument = "--kv-cache-dtype-skip-layers",
          .format = "compressed-tensors",
          .methods = {vllm_compressed_tensors(), vllm_modelopt(), vllm_fp8(), vllm_quark()},
          .otherwise = {.method = "*", .warns_of_ones = false},
          .formats = vllm_formats()};
}

/// Source: Aphrodite b42eeec22, `BaseKVCacheMethod`, `maybe_remap_kv_scale_name` and
/// `LlamaModel.load_weights`; its compressed-tensors method is vLLM's of the spring of 2026.
EngineRules aphrodite_engine(std::string_view) {
  EngineRules rules = vllm_engine("0.32");
  rules.title = "Aphrodite";
  rules.versions = {"b42eeec22"};
  rules.source = "model_executor/layers/quantization/kv_cache.py, models/llama.py";
  rules.command = "aphrodite run";
  for (MethodRules& method : rules.methods)
    if (method.method == "quark")
      method.config.push_back(
          {.key = "global_quant_config", .accepted = {"nothing", "an object"}, .may_lack = true});
  return rules;
}

/// Source: PygmalionAI's Aphrodite 0.6.5, quantization/kv_cache.py, modeling/models/llama.py.
EngineRules aphrodite_06_engine(std::string_view) {
  MethodRules fp8 =
      vllm_base("fp8", {{".k_scale", kKey}, {".v_scale", kValue}, {".kv_scale", kKey}});
  fp8.dialect = FnuzRule::kKept;
  fp8.takes_e5m2 = true;
  return {.title = "Aphrodite",
          .versions = {"0.6.5"},
          .source =
              "quantization/kv_cache.py, modeling/models/llama.py, "
              "modeling/model_loader/weight_utils.py",
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kDroppedWithWarning,
          .command = "python3 -m aphrodite.endpoints.openai.api_server --model",
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "scales-json",
          .methods = {fp8},
          .otherwise = {.method = "*", .warns_of_ones = true},
          .scales_file = {.is_read = true,
                          .argument = "--quantization-param-path",
                          .doubles_on_rocm = true,
                          .model_types = {"llama"}},
          // Source: Aphrodite 0.6.5, llama.py, load_kv_cache_scales.
          .formats = {{.format = "scales-json",
                       .note = "--quantization-param-path; removed in later versions",
                       .is_scales_file = true}}};
}

}  // namespace kvcal
