#include "engines/engine_rules.h"

namespace kvcal {
namespace {

/// Source: LMDeploy 0.18.0, pytorch/config.py, `_parse_compressed_tensors_config`, and
/// pytorch/nn/linear; run (tests/fixtures/engines/packed_lmdeploy.json).
MethodRules lmdeploy_compressed_tensors() {
  return {.method = "compressed-tensors",
          .config = {{.key = "format", .accepted = {"\"pack-quantized\""}},
                     {.key = "quantization_status", .accepted = {"\"compressed\""}},
                     {.key = "config_groups", .accepted = {"group_0 alone"}},
                     {.key = "config_groups.group_0.targets", .accepted = {"[\"Linear\"]"}},
                     {.key = "config_groups.group_0.input_activations",
                      .accepted = {"null"},
                      .may_lack = true},
                     {.key = "config_groups.group_0.output_activations",
                      .accepted = {"null"},
                      .may_lack = true},
                     {.key = "config_groups.group_0.weights", .accepted = {"an object"}},
                     {.key = "config_groups.group_0.weights.num_bits", .accepted = {"4"}},
                     {.key = "config_groups.group_0.weights.group_size", .accepted = {"32"}},
                     {.key = "config_groups.group_0.weights.strategy", .accepted = {"\"group\""}},
                     {.key = "config_groups.group_0.weights.symmetric", .accepted = {"true"}},
                     {.key = "config_groups.group_0.weights.dynamic", .accepted = {"false"}},
                     {.key = "config_groups.group_0.weights.type", .accepted = {"\"int\""}},
                     {.key = "ignore", .accepted = {"a list of texts"}, .may_lack = true}},
          .packs_experts_alone = true};
}

}  // namespace

/// Its PyTorch engine, which holds scales of K and V, and whose loaders know no name of them.
EngineRules lmdeploy_engine(std::string_view) {
  return {.title = "LMDeploy",
          .source = "pytorch/config.py, pytorch/models/*.py; run",
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kRefused,
          .command = "lmdeploy serve api_server",
          .fp8_argument = "--quant-policy fp8",
          .methods = {lmdeploy_compressed_tensors(),
                      {.method = "modelopt*", .refusal = "it does not know ModelOpt"},
                      {.method = "quark", .refusal = "it does not know Quark"}},
          .otherwise = {.method = "*"},
          .formats = {{.format = "compressed-tensors",
                       .method = "compressed-tensors",
                       .otherwise = Reads::kNo,
                       .note = "of compressed-tensors it takes packed INT4 experts alone, and its "
                               "loaders stop at the names of KV scales (KeyError)"},
                      {.format = "fp8",
                       .method = "fp8",
                       .otherwise = Reads::kNo,
                       .note = "its loaders stop at the names of KV scales (KeyError)"},
                      {.format = "tgi",
                       .otherwise = Reads::kNo,
                       .note = "its loaders stop at the name kv_scale (KeyError)"}}};
}

using enum ScaleSide;

/// Source: TensorRT-LLM's PyTorch backend: _torch/modules/linear.py loads k_proj.k_scale and
/// v_proj.v_scale into kv_scales, also of 16-bit weights, which _torch/modules/attention.py hands
/// on for NVFP4 caches only; the backend multiplies FP8 caches by ones. quant_config_utils.py reads
/// compressed-tensors, model_config.py hf_quant_config.json before it.
EngineRules trtllm_engine(std::string_view) {
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
                       .ones = OnesFor::kFp8,
                       .takes_nvfp4 = true,
                       .takes_int8 = true}},
          .otherwise = {.method = "*"},
          // Source: TensorRT-LLM, quant_config_utils.py.
          .formats = {{.format = "modelopt",
                       .method = "modelopt",
                       .note = "INT8 and NVFP4 caches; an FP8 cache has 1.0, whatever it is given",
                       .is_of_int8 = true},
                      {.format = "compressed-tensors",
                       .method = "compressed-tensors",
                       .otherwise = Reads::kNo,
                       .note = "refuses empty config_groups; it reads ModelOpt checkpoints"}}};
}

}  // namespace kvcal
