#include "engines/engine_rules.h"

namespace kvcal {

using enum ScaleSide;

/// Source: TensorRT-LLM's PyTorch backend: _torch/modules/linear.py loads k_proj.k_scale and
/// v_proj.v_scale into kv_scales, also of 16-bit weights, which _torch/modules/attention.py hands
/// on for NVFP4 caches only; the backend multiplies FP8 caches by ones. quant_config_utils.py reads
/// compressed-tensors, model_config.py hf_quant_config.json before it.
EngineRules trtllm_engine() {
  return {.title = "TensorRT-LLM",
          .versions = {"2026-08"},
          .source =
              "_torch/modules/{linear,attention}.py, _torch/attention_backend/trtllm.py, "
              "quant_config_utils.py",
          .reading = {.quant_file = QuantFile::kFirst},
          .command = "trtllm-serve",
          .fp8_argument = "kv_cache_config.dtype: fp8",
          .format = "modelopt",
          .methods = {{.method = "modelopt*",
                       .cache = CacheSwitch::kModelOptCache,
                       .names = {{".k_proj.k_scale", kKey}, {".v_proj.v_scale", kValue}},
                       .absent = Absent::kOneForBoth,
                       .ones_for_fp8 = true,
                       .takes_nvfp4 = true}},
          .otherwise = {.method = "*"},
          // Source: TensorRT-LLM, quant_config_utils.py.
          .formats = {{.format = "compressed-tensors",
                       .method = "compressed-tensors",
                       .otherwise = Reads::kNo,
                       .note = "refuses empty config_groups; it reads ModelOpt checkpoints"}}};
}

}  // namespace kvcal
