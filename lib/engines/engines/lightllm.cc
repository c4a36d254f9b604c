#include "engines/engine_rules.h"
#include "stored/scales_file.h"

// Engines that take scales from a file of their own form alone.

namespace kvcal {
namespace {

std::string lightllm_kind(bool, size_t scales_of_layer) {
  return scales_of_layer > 1 ? "--llm_kv_type fp8kv_sph" : "--llm_kv_type fp8kv_spt";
}

std::string onnxruntime_genai_kind(bool is_int8, size_t scales_of_layer) {
  return std::string("-p int4 -e ") + (is_int8 ? "cpu" : "cuda") +
         " --extra_options kv_cache_quant_scheme=" + (is_int8 ? "int8" : "fp8") +
         (scales_of_layer > 1 ? "_per_channel" : "_per_tensor");
}

}  // namespace

/// Source: LightLLM 87881ae, common/kv_cache_mem_manager and model_infer's option; its readers of
/// the file were run (reference/scales_files.py), its loaders of models were not.
EngineRules lightllm_engine(std::string_view) {
  return {
      .title = "LightLLM",
      .versions = {"2026-08"},
      .source = "common/kv_cache_mem_manager/*.py",
      .command = "python -m lightllm.server.api_server --model_dir",
      .format = "lightllm",
      .is_asked_by_name = true,
      .otherwise = {.method = "*", .warns_of_ones = true},
      .scales_file = {.is_read = true,
                      .argument = "--kv_quant_calibration_config_path",
                      .name = kLightllmName,
                      .kind_argument = lightllm_kind,
                      .read = read_lightllm_file},
      .formats = {{.format = "lightllm", .note = "FP8 by tensor or head", .is_scales_file = true}}};
}

/// Source: ONNX Runtime GenAI 0.18, models/builders/base.py, whose reading of the file was run
/// (reference/scales_files.py), and INT8 caches of its graphs on a CPU
/// (reference/onnxruntime_genai_run.py); which models it builds was not tried.
EngineRules onnxruntime_genai_engine(std::string_view) {
  return {.title = "ONNX Runtime GenAI",
          .versions = {"0.18"},
          .source = "models/builders/base.py",
          .command = "python -m onnxruntime_genai.models.builder -o GRAPH -i",
          .format = "onnxruntime-genai",
          .is_asked_by_name = true,
          .otherwise = {.method = "*", .warns_of_ones = true},
          .scales_file = {.is_read = true,
                          .argument = "kv_cache_scale_file=",
                          .name = kOnnxruntimeGenaiName,
                          .kind_argument = onnxruntime_genai_kind,
                          .read = read_onnxruntime_genai_file},
          .formats = {{.format = "onnxruntime-genai",
                       .note = "INT8 by tensor or channel, FP8 by tensor",
                       .is_scales_file = true}}};
}

}  // namespace kvcal
