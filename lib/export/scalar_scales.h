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
  bool has_queries = false;   ///< holds scales of queries and of softmax weights, too
};

/// Throws Error where a checkpoint of the form cannot hold the calibration, or where the source's
/// weights are quantized in another form.
void check_scalar_scales(const ExportInput& input, const ScalarForm& form);

/// The scales of K and V of every layer that is not ignored, F32: the largest over the heads, so
/// that nothing saturates that did not before. Where the form has queries and they are quantized,
/// also theirs, and kProbScale of softmax weights: their amax is 1 in every layer, that of the
/// first token's on itself, so the scale is 1/448. Source: vLLM 0.32 `Fp8Config` and `QuarkConfig`,
/// get_cache_scale_mapper, which know the latter below self_attn only.
std::vector<Tensor> scalar_scales(const Calibration& calibration, const ScalarForm& form,
                                  const Shape& shape = {});

/// Scales of shape [], the weights' form, and vllm.yaml where layers are ignored.
FormatParts scalar_parts(const ExportInput& input, const ScalarForm& form);

/// Scales that a reader of the format gets: one of K and one of V.
HeldScales held_scalars(const AttentionCalibration& layer);

/// Note that vLLM needs an option for an FP8 cache; empty without KV scales.
std::vector<std::string> told_cache_notes(const ExportInput& input, const ScalarForm& form);

/// Notes on values that the format does not keep and on options that vLLM needs.
std::vector<std::string> scalar_scale_notes(const ExportInput& input, const ScalarForm& form);

}  // namespace kvcal
