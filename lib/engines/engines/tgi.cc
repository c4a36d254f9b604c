#include "engines/engine_rules.h"

namespace kvcal {
namespace {

using enum ScaleSide;

/// Source: TGI, `get_kv_scales`, `KVScales` and `Weights.get_tensor`, which casts what is not asked
/// to keep its dtype.
MethodRules tgi_any(std::string_view method, CacheSwitch cache) {
  return {.method = method,
          .cache = cache,
          .fp8_name = "fp8_e4m3fn",
          .names = {{".k_scale", kKey}, {".v_scale", kValue}, {".kv_scale", kBoth}},
          .absent = Absent::kOneForBoth,
          .rounding = Rounding::kSharedToFloat16};
}

/// Source: TGI db931fcf, `CompressedTensorsLoader` (loader.py:193), run.
MethodRules tgi_compressed_tensors() {
  MethodRules rules = tgi_any("compressed-tensors", CacheSwitch::kSchemeOnCuda);
  rules.scheme = {{.key = "strategy", .accepted = {"\"tensor\"", "null"}, .may_lack = true}};
  rules.refuses_other_schemes = true;
  rules.needs_targets = true;
  rules.config = {{.key = "config_groups.*", .accepted = {"a group"}},
                  {.key = "config_groups.*.weights", .accepted = {"an object"}},
                  {.key = "format",
                   .accepted = {"\"float-quantized\"", "\"naive-quantized\"", "\"pack-quantized\"",
                                "\"marlin-24\"", "\"int-quantized\""},
                   .when = {{.key = "config_groups", .accepted = {"an object with entries"}}}}};
  return rules;
}

}  // namespace

EngineRules tgi_engine(std::string_view) {
  return {.title = "TGI",
          .source = "layers/attention/kv_cache.py, utils/{weights,hub}.py, models/__init__.py",
          .reading = {.method_has_case = true,
                      .refuses_auto_type = true,
                      .refuses_null_config = true,
                      .reads_text_config = false},
          .files = {.selection = ShardSelection::kAll,
                    .refuses_repeats = true,
                    .leaves_out = {"arguments", "args", "training"}},
          .command = "text-generation-launcher --model-id",
          .fp8_argument = "--kv-cache-dtype fp8_e4m3fn",
          .format = "tgi",
          .methods = {tgi_compressed_tensors(),
                      {.method = "fbgemm_fp8",
                       .refusal = "it asks the configuration of fbgemm_fp8 for weight_block_size, "
                                  "which it does not have (AttributeError)"}},
          .otherwise = tgi_any("*", CacheSwitch::kNever),
          .formats = {
              // Source: TGI, layers/attention/kv_cache.py, get_kv_scales.
              {.format = "tgi",
               .names = {".kv_scale"},
               .note = "kv_scale, for FP8 E4M3 caches on CUDA"},
              {.format = "compressed-tensors",
               .method = "compressed-tensors",
               .names = kPlainScales,
               .note = "of one element, where ignore names Linear"},
          }};
}

/// Source: TGI's branch fp8_kvcache, `get_kv_cache_scaling_factor`; the dialect is that of
/// kv_cache_torch_dtype in config.json (cache_choice.cc).
EngineRules tgi_branch_engine(std::string_view) {
  MethodRules any = tgi_any("*", CacheSwitch::kNever);
  any.names = {{".kv_scale", kBoth}};
  any.rounding = Rounding::kNone;
  any.dialect = FnuzRule::kByConfig;
  return {.title = "TGI branch fp8_kvcache",
          .versions = {"1e6e7db0"},
          .source = "utils/weights.py",
          .command = "text-generation-launcher --model-id",
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "tgi",
          .otherwise = any};
}

}  // namespace kvcal
