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
  rules.scheme = {{"type", {"\"float\""}},
                  {"num_bits", {"8"}},
                  {"strategy", {"\"tensor\""}},
                  {"symmetric", {"true"}, true},
                  {"dynamic", {"false", "null"}, true}};
  return rules;
}

/// Source: SGLang 0.5.23, the model files that define load_kv_cache_scales.
const ModelTypes kReadsScalesFile{"apertus", "arcee", "exaone4", "glm4",  "llama",
                                  "mimo",    "opt",   "qwen2",   "qwen3", "solar"};

}  // namespace

EngineRules sglang_engine() {
  MethodRules modelopt = sglang_base("modelopt*", CacheSwitch::kModelOptCache);
  modelopt.needs_algorithm = true;
  return {.title = "SGLang",
          .version = "0.5.23",
          .source =
              "srt/model_loader/weight_utils.py, srt/layers/quantization/{kv_cache,fp8,"
              "modelopt_quant}.py, srt/mem_cache/kv_cache_dtype.py, srt/models/llama.py",
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
                          .model_types = kReadsScalesFile,
                          .conflicts_with_parameters = true},
          .formats = {
              {.version = "2026-08",
               .format = "compressed-tensors",
               .note = "reads the format since 2026-08, per tensor; families were not tried"},
              {.version = "0.5.23",
               .format = "scales-json",
               .reads = kReadsScalesFile,
               .note = "--quantization-param-path with --kv-cache-dtype fp8_e4m3; some of its "
                       "attention backends fail on the scales"},
          }};
}

}  // namespace kvcal
