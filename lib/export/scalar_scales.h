#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/kv_forms.h"
#include "export/writer.h"

namespace kvcal {

/// Throws Error where a checkpoint of title's kind ("ModelOpt") cannot hold the calibration as one
/// float32 scale for K and one for V of a layer, by form's names, beside 16-bit weights.
void check_scalar_scales(const ExportInput& input, const KvForm& form, std::string_view title);

/// K's and V's scale of every layer that is not ignored, F32 of shape []: of several heads the
/// largest, so that nothing saturates that did not before.
std::vector<Tensor> scalar_scales(const Calibration& calibration, const KvForm& form);

/// The checkpoint with these scales and that quantization_config, vllm.yaml where layers are
/// ignored.
void write_scalar_checkpoint(const ExportInput& input, const KvForm& form,
                             const Json& quantization_config, const std::filesystem::path& folder);

/// What such a checkpoint does not keep and what vLLM must be told of it.
std::vector<std::string> scalar_scale_notes(const Calibration& calibration, std::string_view title);

}  // namespace kvcal
