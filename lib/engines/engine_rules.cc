#include "engines/engine_rules.h"

namespace kvcal {
namespace {

using enum ScaleSide;
using Names = std::vector<NameRule>;

Names joined(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

/// Source: vLLM 0.32, `QuantizationConfig.get_cache_scale_mapper` and `maybe_remap_kv_scale_name`.
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
          {".qkv_proj.k_scale", kKey, true},
          {".qkv_proj.v_scale", kValue, true},
          {".qkqkv_proj.k_scale", kKey, true},
          {".qkqkv_proj.v_scale", kValue, true},
          {".k_cache.scale", kKey, true},
          {".v_cache.scale", kValue, true},
          {".q.scale", kTaken, true}};
}

/// Parameters that only compressed-tensors' own method makes.
const Names kZeroPoints{
    {".k_zero_point", kTaken}, {".v_zero_point", kTaken}, {".q_zero_point", kTaken}};

/// Source: vLLM 0.32, `Fp8Config` and `QuarkConfig`, `get_cache_scale_mapper`.
const Names kOutputScales{{".k_proj.output_scale", kKey},
                          {".v_proj.output_scale", kValue},
                          {".q_proj.output_scale", kTaken},
                          {".prob_output_scale", kTaken}};

/// Source: vLLM 0.32, `CompressedTensorsKVCacheMethod.validate_kv_cache_scheme`.
const std::vector<SchemeCheck> kVllmScheme{{"type", {"\"float\""}},
                                           {"num_bits", {"8"}},
                                           {"strategy", {"\"tensor\"", "\"attn_head\""}},
                                           {"symmetric", {"true"}}};

MethodRules vllm_compressed_tensors() {
  return {.method = "compressed-tensors",
          .cache = CacheSwitch::kScheme,
          .names = joined(vllm_names(), kZeroPoints),
          .scheme = kVllmScheme,
          .refuses_other_schemes = true,
          .takes_heads = true,
          .takes_e5m2 = false};
}

/// Source: vLLM 0.32, `BaseKVCacheMethod`, which the methods below inherit. Its parameters are made
/// while the model's dtype is torch's default, so they are of that dtype.
MethodRules vllm_base(std::string_view method, Names names) {
  return {.method = method,
          .names = std::move(names),
          .absent = Absent::kDuplicateKey,
          .warns_of_ones = true,
          .doubles_on_rocm = true,
          .rounds_to_model = true,
          .ones_for_16_bits = true,
          .takes_e5m2 = false};
}

MethodRules vllm_modelopt() {
  MethodRules rules = vllm_base("modelopt*", vllm_names());
  rules.cache = CacheSwitch::kModelOptCache;
  rules.fp8_name = "fp8_e4m3";
  rules.needs_algorithm = true;
  return rules;
}

EngineRules vllm() {
  return {.title = "vLLM",
          .version = "0.32",
          .source =
              "model_loader/weight_utils.py, layers/quantization/{kv_cache,base_config,fp8,"
              "modelopt}.py, quark/quark.py, compressed_tensors/compressed_tensors.py; run",
          .verdicts = "vLLM",
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kRefused,
          .takes_sharded_heads = true,
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "compressed-tensors",
          .quant_file = QuantFile::kWithoutConfig,
          .methods = {vllm_compressed_tensors(), vllm_modelopt(),
                      vllm_base("fp8", joined(vllm_names(), kOutputScales)),
                      vllm_base("quark", joined(vllm_names(), kOutputScales))},
          .otherwise = {.method = "*", .warns_of_ones = false},
          .scales_file = {}};
}

/// Source: SGLang 0.5.23, `maybe_remap_kv_scale_name`.
Names sglang_names() {
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
  rules.scheme = {{"type", {"\"float\""}},
                  {"num_bits", {"8"}},
                  {"strategy", {"\"tensor\""}},
                  {"symmetric", {"true"}, true},
                  {"dynamic", {"false", "null"}, true}};
  return rules;
}

EngineRules sglang() {
  MethodRules modelopt = sglang_base("modelopt*", CacheSwitch::kModelOptCache);
  modelopt.needs_algorithm = true;
  return {.title = "SGLang",
          .version = "0.5.23",
          .source =
              "srt/model_loader/weight_utils.py, srt/layers/quantization/{kv_cache,fp8,"
              "modelopt_quant}.py, srt/mem_cache/kv_cache_dtype.py, srt/models/llama.py",
          .verdicts = "SGLang",
          .unknown = Unknown::kDroppedWithWarning,
          .unplaced = Unknown::kDroppedWithWarning,
          .fp8_argument = "--kv-cache-dtype fp8_e4m3",
          .format = "compressed-tensors",
          .quant_file = QuantFile::kWithoutConfig,
          .methods = {sglang_compressed_tensors(), modelopt,
                      sglang_base("fp8", CacheSwitch::kCacheQuantAlgo),
                      sglang_base("quark", CacheSwitch::kNever)},
          .otherwise = {.method = "*", .fp8_name = "fp8_e4m3", .warns_of_ones = true},
          .scales_file = {.is_read = true,
                          .argument = "--quantization-param-path",
                          .doubles_on_rocm = false,
                          .model_types = {"apertus", "arcee", "exaone4", "glm4", "llama", "mimo",
                                          "opt", "qwen2", "qwen3", "solar"},
                          .conflicts_with_parameters = true}};
}

/// Source: TGI, `get_kv_scales`, `KVScales` and `Weights.get_tensor`, which casts what is not asked
/// to keep its dtype.
MethodRules tgi_any(std::string_view method, CacheSwitch cache) {
  return {.method = method,
          .cache = cache,
          .fp8_name = "fp8_e4m3fn",
          .names = {{".k_scale", kKey}, {".v_scale", kValue}, {".kv_scale", kBoth}},
          .absent = Absent::kOneForBoth,
          .rounds_shared_scale = true};
}

EngineRules tgi() {
  return {.title = "TGI",
          .version = "db931fcf (2026-01)",
          .source = "layers/attention/kv_cache.py, utils/weights.py, models/__init__.py",
          .verdicts = "TGI",
          .fp8_argument = "--kv-cache-dtype fp8_e4m3fn",
          .format = "tgi",
          .methods = {tgi_any("compressed-tensors", CacheSwitch::kSchemeOnCuda)},
          .otherwise = tgi_any("*", CacheSwitch::kNever),
          .scales_file = {}};
}

/// Source: TGI's branch fp8_kvcache, `get_kv_cache_scaling_factor`; the dialect is that of
/// kv_cache_torch_dtype in config.json (cache_choice.cc).
EngineRules tgi_branch() {
  MethodRules any = tgi_any("*", CacheSwitch::kNever);
  any.names = {{".kv_scale", kBoth}};
  any.rounds_shared_scale = false;
  any.dialect_by_config = true;
  return {.title = "TGI branch fp8_kvcache",
          .version = "1e6e7db0",
          .source = "utils/weights.py",
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "tgi",
          .methods = {},
          .otherwise = any,
          .scales_file = {}};
}

/// Source: Aphrodite b42eeec22, `BaseKVCacheMethod`, `maybe_remap_kv_scale_name` and
/// `LlamaModel.load_weights`; its compressed-tensors method is vLLM's of the spring of 2026.
EngineRules aphrodite() {
  const Names names = joined(vllm_names(), kOutputScales);
  MethodRules compressed = vllm_compressed_tensors();
  compressed.names = joined(names, kZeroPoints);
  MethodRules modelopt = vllm_modelopt();
  return {.title = "Aphrodite",
          .version = "b42eeec22 (2026-04)",
          .source = "model_executor/layers/quantization/kv_cache.py, models/llama.py",
          .verdicts = "",
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kDroppedWithWarning,
          .takes_sharded_heads = true,
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "compressed-tensors",
          .quant_file = QuantFile::kWithoutConfig,
          .methods = {compressed, modelopt, vllm_base("fp8", names), vllm_base("quark", names)},
          .otherwise = {.method = "*", .warns_of_ones = false},
          .scales_file = {}};
}

/// Source: PygmalionAI's Aphrodite 0.6.5, quantization/kv_cache.py, modeling/models/llama.py.
EngineRules aphrodite_06() {
  MethodRules fp8 =
      vllm_base("fp8", {{".k_scale", kKey}, {".v_scale", kValue}, {".kv_scale", kKey}});
  fp8.doubles_on_rocm = false;
  fp8.takes_e5m2 = true;
  return {.title = "Aphrodite",
          .version = "0.6.5",
          .source =
              "quantization/kv_cache.py, modeling/models/llama.py, "
              "modeling/model_loader/weight_utils.py",
          .verdicts = "Aphrodite",
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kDroppedWithWarning,
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "scales-json",
          .methods = {fp8},
          .otherwise = {.method = "*", .warns_of_ones = true},
          .scales_file = {.is_read = true,
                          .argument = "--quantization-param-path",
                          .doubles_on_rocm = true,
                          .model_types = {},
                          .conflicts_with_parameters = false}};
}

/// Source: TensorRT-LLM's PyTorch backend: _torch/modules/linear.py loads k_proj.k_scale and
/// v_proj.v_scale into kv_scales, which _torch/modules/attention.py hands on for NVFP4 caches only;
/// the backend multiplies FP8 caches by ones. quant_config_utils.py reads compressed-tensors,
/// model_config.py hf_quant_config.json before it.
EngineRules trtllm() {
  return {.title = "TensorRT-LLM",
          .version = "2026-08, PyTorch backend",
          .source =
              "_torch/modules/{linear,attention}.py, _torch/attention_backend/trtllm.py, "
              "quant_config_utils.py",
          .verdicts = "",
          .fp8_argument = "kv_cache_config.dtype: fp8",
          .format = "modelopt",
          .quant_file = QuantFile::kFirst,
          .methods = {{.method = "modelopt*",
                       .cache = CacheSwitch::kModelOptCache,
                       .names = {{".k_proj.k_scale", kKey}, {".v_proj.v_scale", kValue}},
                       .absent = Absent::kOneForBoth,
                       .ones_for_fp8 = true}},
          .otherwise = {.method = "*"},
          .scales_file = {}};
}

/// Source: transformers 5.17 with compressed-tensors 0.19, run (tests/fixtures/engines).
EngineRules transformers() {
  Names names =
      joined({{".k_scale", kKey}, {".v_scale", kValue}, {".q_scale", kTaken}}, kZeroPoints);
  return {.title = "transformers",
          .version = "5.17, compressed-tensors 0.19",
          .source = "run",
          .verdicts = "transformers",
          .unknown = Unknown::kDroppedWithWarning,
          .unplaced = Unknown::kDroppedWithWarning,
          .fp8_argument = "",
          .format = "compressed-tensors",
          .methods = {{.method = "compressed-tensors",
                       .cache = CacheSwitch::kScheme,
                       .names = names,
                       .absent = Absent::kUndefined,
                       .scheme = {{"strategy", {"\"tensor\"", "\"attn_head\""}}},
                       .refuses_other_schemes = true,
                       .takes_heads = true,
                       .takes_any_shape = true,
                       .rounds_to_model = true,
                       .needs_scheme = true,
                       .takes_dynamic = true},
                      {.method = "quark", .refusal = "it needs the package amd-quark"}},
          .otherwise = {.method = "*"},
          .scales_file = {}};
}

bool matches(std::string_view pattern, std::string_view method) {
  if (pattern.ends_with('*')) return method.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == method;
}

}  // namespace

const Registry<EngineRules>& engine_rules() {
  static const Registry<EngineRules> kTable{"engine",
                                            {{"vllm", vllm()},
                                             {"sglang", sglang()},
                                             {"tgi", tgi()},
                                             {"tgi-branch", tgi_branch()},
                                             {"aphrodite", aphrodite()},
                                             {"aphrodite-0.6", aphrodite_06()},
                                             {"trtllm", trtllm()},
                                             {"transformers", transformers()}}};
  return kTable;
}

const MethodRules& rules_for(const EngineRules& engine, std::string_view method) {
  for (const MethodRules& rules : engine.methods)
    if (matches(rules.method, method)) return rules;
  return engine.otherwise;
}

}  // namespace kvcal
