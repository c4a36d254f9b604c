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
          .rounds_shared_scale = true};
}

}  // namespace

EngineRules tgi_engine() {
  return {.title = "TGI",
          .version = "db931fcf (2026-01)",
          .source = "layers/attention/kv_cache.py, utils/weights.py, models/__init__.py",
          .fp8_argument = "--kv-cache-dtype fp8_e4m3fn",
          .format = "tgi",
          .methods = {tgi_any("compressed-tensors", CacheSwitch::kSchemeOnCuda)},
          .otherwise = tgi_any("*", CacheSwitch::kNever),
          .formats = {
              // Source: TGI, layers/attention/kv_cache.py, get_kv_scales.
              {.version = "2026-01",
               .format = "tgi",
               .note = "reads kv_scale for FP8 E4M3 caches on CUDA; families were not tried"},
              {.version = "2026-01",
               .format = "compressed-tensors",
               .note = "reads k_scale and v_scale of one element; families were not tried"},
          }};
}

/// Source: TGI's branch fp8_kvcache, `get_kv_cache_scaling_factor`; the dialect is that of
/// kv_cache_torch_dtype in config.json (cache_choice.cc).
EngineRules tgi_branch_engine() {
  MethodRules any = tgi_any("*", CacheSwitch::kNever);
  any.names = {{".kv_scale", kBoth}};
  any.rounds_shared_scale = false;
  any.dialect_by_config = true;
  return {.title = "TGI branch fp8_kvcache",
          .version = "1e6e7db0",
          .source = "utils/weights.py",
          .fp8_argument = "--kv-cache-dtype fp8",
          .format = "tgi",
          .otherwise = any};
}

}  // namespace kvcal
