#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "family/model_config.h"
#include "stored/stored_format.h"

namespace kvcal {

/// Names of the files of KV scales that engines read beside a checkpoint.
inline constexpr std::string_view kOnnxruntimeGenaiName = "kv_scales.json";
inline constexpr std::string_view kLightllmName = "kv_cache_calib.json";

/// ONNX Runtime GenAI's qmax of INT8: the scales of its own tool are threshold / 128. Source: ONNX
/// Runtime GenAI 0.18 kv_cache_calibration.py, `_get_quant_type_max`.
inline constexpr double kOnnxruntimeGenaiInt8Most = 128.0;

/// Limits of such a file. One scale a channel of 64 heads of 128 in 128 layers has two million.
inline constexpr JsonLimits kScalesFileLimits{.max_bytes = size_t{128} << 20,
                                              .max_values = 4'000'000};

/// The JSON file of scales at a place: a file that ends in .json and holds the key, whatever its
/// name, or the file of that name in a folder. nullopt: there is none. key: of this format alone;
/// empty: any file will do.
std::optional<std::filesystem::path> find_scales_file(const std::filesystem::path& place,
                                                      std::string_view name, std::string_view key);

/// A number of a file of scales, as the float32 that engines make of it. Throws Error where it is
/// no usable scale.
Scale scale_of(const Json& value);

/// Reads ONNX Runtime GenAI's kv_cache_scale_file (formats/onnxruntime_genai_format.cc).
ScalesBeside read_onnxruntime_genai_file(const std::filesystem::path& path,
                                         const ModelConfig& config);

/// Reads LightLLM's kv_cache_calib.json (formats/lightllm_format.cc).
ScalesBeside read_lightllm_file(const std::filesystem::path& path, const ModelConfig& config);

/// The architecture that LightLLM compares with the file's. model: its config.json. Source:
/// LightLLM, `get_model_architectures`.
std::string lightllm_architecture(const Json& model);

}  // namespace kvcal
