#include <algorithm>

#include "engines/engines/vllm_rules.h"

namespace kvcal {

using enum ScaleSide;

/// Source: Aphrodite b42eeec22, `BaseKVCacheMethod`, `maybe_remap_kv_scale_name` and
/// `LlamaModel.load_weights`; its compressed-tensors method is vLLM's of the spring of 2026.
EngineRules aphrodite_engine() {
  std::vector<Miss> misses = vllm_all_misses();
  // Of GLM it has its own model file, where vLLM has transformers'; of the others it loads them,
  // too.
  using enum MissEffect;
  const std::vector<Miss> own{
      {.types = {"biogpt", "cwm", "gemma4_unified_text", "glm", "mellum", "minicpmv4_6"},
       .effect = kByRules,
       .methods = {"quark"}},
      {.types = {"cohere_compass"},
       .why = kStopsAtOutputScale,
       .effect = kRefused,
       .methods = {"quark"},
       .names = {"_proj.output_scale"}},
      {.types = {"aria", "aria_text"},
       .why = "its Transformers backend does not run the model's experts",
       .effect = kNoModel},
      {.types = {"cohere_compass_text", "exaone_moe"},
       .why = "it asks config.json for a key that such models do not have",
       .effect = kNoModel},
      {.types = {"gemma4", "gemma4_text", "gemma4_unified"},
       .why = "its loader drops kv_scale",
       .names = {".kv_scale"}},
      {.types = {"mimo_v2_flash"},
       .why = "its attention with heads of two sizes takes no FP8 cache (NotImplementedError)",
       .effect = kRefused,
       .methods = {"compressed-tensors"}},
      {.types = {"mimo_v2_flash"},
       .why = "its attention with heads of two sizes keeps 16 bits",
       .effect = kSixteenBits}};
  misses.insert(misses.begin(), own.begin(), own.end());
  ModelTypes tried = vllm_tried();
  // Two have attention of chosen tokens, which needs a GPU; of the others its transformers does not
  // know the model or calls parts otherwise, or the fixture has not all parts.
  const ModelTypes not_run{"deepseek_v32", "glm_moe_dsa", "hyperclovax_vision_v2", "minicpmv4_7",
                           "moss_transcribe_diarize"};
  const auto is_other = [&](std::string_view type) {
    return std::ranges::find(not_run, type) != not_run.end();
  };
  std::erase_if(tried, is_other);
  for (Miss& miss : misses) std::erase_if(miss.types, is_other);
  return {.title = "Aphrodite",
          .versions = {"0.24.1", "b42eeec22"},
          .source = "model_executor/layers/quantization/kv_cache.py, models/llama.py",
          .reading = vllm_reading(),
          .files = vllm_files(),
          .run_dtype = vllm_run_dtype(),
          .unknown = Unknown::kRefused,
          .unplaced = Unknown::kRefused,
          .takes_sharded_heads = true,
          .command = "aphrodite run",
          .fp8_argument = "--kv-cache-dtype fp8",
          .skip_argument = kVllmSkipArgument,
          .format = "compressed-tensors",
          .methods = {vllm_compressed_tensors(), vllm_modelopt(), vllm_fp8(), vllm_quark()},
          .otherwise = {.method = "*", .warns_of_ones = false},
          .tried = std::move(tried),
          .misses = std::move(misses),
          .formats = vllm_formats(),
          .drafts = vllm_drafts()};
}

/// Source: PygmalionAI's Aphrodite 0.6.5, quantization/kv_cache.py, modeling/models/llama.py.
EngineRules aphrodite_06_engine() {
  MethodRules fp8 =
      vllm_base("fp8", {{".k_scale", kKey}, {".v_scale", kValue}, {".kv_scale", kKey}});
  fp8.doubles_on_rocm = false;
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
