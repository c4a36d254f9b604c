#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "export/writer.h"
#include "stored/kv_forms.h"

namespace kvcal {

/// A format whose checkpoints hold one float32 scale for K and one for V of a layer.
struct ScalarForm {
  std::string_view format;    ///< as --format names it, and the source's quant_method
  std::string_view title;     ///< "ModelOpt"
  const KvForm& names;        ///< of the scales
  const WeightForm& weights;  ///< of FP8 weights
};

/// Throws Error where a checkpoint of the form cannot hold the calibration, and where the source's
/// weights are quantized in another one.
void check_scalar_scales(const ExportInput& input, const ScalarForm& form);

/// K's and V's scale of every layer that is not ignored, F32: of several heads the largest, so that
/// nothing saturates that did not before.
std::vector<Tensor> scalar_scales(const Calibration& calibration, const KvForm& form,
                                  const Shape& shape = {});

/// The scales [], the weights' form, and vllm.yaml where layers are ignored.
FormatParts scalar_parts(const ExportInput& input, const ScalarForm& form);

/// What a reader finds: one scale of K and one of V.
HeldScales held_scalars(const AttentionCalibration& layer);

/// That vLLM must be told to use an FP8 cache, where there are scales of one.
std::vector<std::string> told_cache_notes(const ExportInput& input, const ScalarForm& form);

/// What such a checkpoint does not keep and what vLLM must be told of it.
std::vector<std::string> scalar_scale_notes(const ExportInput& input, const ScalarForm& form);

}  // namespace kvcal
