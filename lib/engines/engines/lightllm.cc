#include "engines/engine_rules.h"
#include "stored/scales_file.h"

// Engines that take scales from a file of their own form alone.

namespace kvcal {

/// Source: LightLLM 87881ae, common/kv_cache_mem_manager and model_infer's option; its readers of
/// the file were run (reference/scales_files.py), its loaders of models were not.
EngineRules lightllm_engine(std::string_view) {
  return {.title = "LightLLM",
          .versions = {"2026-08"},
          .source = "common/kv_cache_mem_manager/*.py",
          .command = "python -m lightllm.server.api_server --llm_kv_type fp8kv_sph --model_dir",
          .format = "lightllm",
          .otherwise = {.method = "*", .warns_of_ones = true},
          .scales_file = {.is_read = true,
                          .argument = "--kv_quant_calibration_config_path",
                          .read = read_lightllm_file}};
}

/// Source: ONNX Runtime GenAI 0.18, models/builders/base.py, whose reading of the file was run
/// (reference/scales_files.py), and INT8 caches of its graphs on a CPU
/// (reference/onnxruntime_genai_run.py); which models it builds was not tried.
EngineRules onnxruntime_genai_engine(std::string_view) {
  return {.title = "ONNX Runtime GenAI",
          .versions = {"0.18"},
          .source = "models/builders/base.py",
          .command = "python -m onnxruntime_genai.models.builder -i",
          .format = "onnxruntime-genai",
          .otherwise = {.method = "*", .warns_of_ones = true},
          .scales_file = {.is_read = true,
                          .argument = "--extra_options kv_cache_scale_file",
                          .read = read_onnxruntime_genai_file}};
}

}  // namespace kvcal
