#include "engines/engine_rules.h"

namespace kvcal {

using enum ScaleSide;

/// Source: vllm-ascend 182b75ea, quantization/modelslim_config.py, `_add_kvcache_quant_metadata`,
/// methods/kv_c8.py, `AscendC8KVCacheAttentionMethod`, attention/attention_v1.py,
/// `_prepare_c8_scales`, which keeps the scales in the model's dtype. Read, not run.
EngineRules vllm_ascend_engine(std::string_view) {
  return {
      .title = "vLLM-Ascend",
      .versions = {"182b75ea"},
      .source = "quantization/methods/kv_c8.py, attention/attention_v1.py",
      .reading = {.quant_file = QuantFile::kFirst,
                  .file_name = kAscendDescriptionName,
                  .file_method = "ascend"},
      .command = "vllm serve --quantization ascend",
      .format = "ascend",
      .is_asked_by_name = true,
      .methods = {{.method = "ascend",
                   .names = {{".k_proj.kv_cache_scale", kKey}, {".v_proj.kv_cache_scale", kValue}},
                   .absent = Absent::kUndescribed,
                   .shapes = ScaleShapes::kChannels,
                   .rounding = Rounding::kToModel,
                   .takes_int8 = true}},
      .otherwise = {.method = "*"},
      .formats = {{.format = "ascend", .method = "ascend", .note = "INT8 by channel"}}};
}

}  // namespace kvcal
