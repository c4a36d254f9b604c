#include "export/scalar_scales.h"

#include "export/attention_scales.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/planned_weights.h"
#include "export/weight_notes.h"

namespace kvcal {
namespace {

/// vLLM holds these scales in the 16-bit dtype that it runs the model in, and runs none of these
/// methods in float32. Source: vLLM 0.32, `KVCacheScaleParameter`, whose tensor gets torch's
/// default dtype, and `get_supported_act_dtypes`.
void check_layer_scales(const ModelDir& model, const AttentionCalibration& layer,
                        const ScalarForm& scalar) {
  const KvForm& form = scalar.names;
  std::vector<std::string> names;
  // Scales with other names would take precedence, or be an error.
  for (const KvForm& other : kv_forms())
    for (const std::string_view name : {other.k, other.v})
      names.push_back(layer.module + std::string(name));
  check_tensors_are_new(model, names);
  const DType dtype = run_dtype(model, layer.module);
  const std::string where = std::string(name_of(dtype)) + ", in which vLLM holds it";
  check_survives(layer.module + std::string(form.k), largest_of(layer.k.scales), dtype, where);
  check_survives(layer.module + std::string(form.v), largest_of(layer.v.scales), dtype, where);
  if (scalar.has_queries && layer.q)
    check_survives(layer.module + std::string(form.q), largest_of(layer.q->scales), dtype, where);
}

}  // namespace

void check_scalar_scales(const ExportInput& input, const ScalarForm& form) {
  const Calibration& calibration = input.calibration;
  check_calibration(calibration);
  if (calibration.kv_format != fp8::Format::kE4m3Fn)
    fail(form.title,
         "'s form holds scales of E4M3FN, which engines double where codes are E4M3FNUZ; the "
         "calibration has another format (convert takes --fp8-dialect fn)");
  if (input.scale_in_model_dtype)
    fail(form.title, "'s scales are float32; scale dtype 'model' is not for them");
  check_kept(input, form.format, form.title);
  check_covers_model(input.model, calibration);
  for (const AttentionCalibration& layer : calibration.layers)
    if (!layer.ignored) check_layer_scales(input.model, layer, form);
  if (calibration.plan.quantizes_weights()) check_weights(input, form.weights);
}

std::vector<Tensor> scalar_scales(const Calibration& calibration, const ScalarForm& form,
                                  const Shape& shape) {
  const KvForm& names = form.names;
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, const KvTensorCalibration& side) {
    tensors.push_back(scale_tensor(name, shape, {largest_of(side.scales)}, DType::kF32));
  };
  for (const AttentionCalibration& layer : calibration.layers) {
    if (layer.ignored) continue;
    const auto name = [&](char letter, std::string_view usual) {
      return layer.scales_at.empty()
                 ? layer.module + std::string(usual)
                 : module_of_side(layer.scales_at, letter) + "." + letter + "_scale";
    };
    add(name('k', names.k), layer.k);
    add(name('v', names.v), layer.v);
    if (!form.has_queries || !layer.q || !layer.scales_at.empty()) continue;
    add(layer.module + std::string(names.q), *layer.q);
    if (layer.module.ends_with(".self_attn"))
      tensors.push_back(scale_tensor(layer.module + std::string(kProbScale), shape,
                                     {scale_from(Amax{1.0f}, calibration.kv_format)}, DType::kF32));
  }
  return tensors;
}

FormatParts scalar_parts(const ExportInput& input, const ScalarForm& form) {
  FormatParts parts{.tensors = scalar_scales(input.calibration, form), .weights = &form.weights};
  if (auto arguments = vllm_arguments(input.calibration))
    parts.files.emplace(kVllmArgumentsName, *std::move(arguments));
  return parts;
}

HeldScales held_scalars(const AttentionCalibration& layer) {
  return {{largest_of(layer.k.scales)}, {largest_of(layer.v.scales)}};
}

std::vector<std::string> told_cache_notes(const ExportInput& input, const ScalarForm& form) {
  if (input.calibration.layers.empty()) return {};
  return {"quant_method " + std::string(form.format) +
          " does not turn the FP8 cache on by itself; start vLLM with --kv-cache-dtype fp8"};
}

std::vector<std::string> scalar_scale_notes(const ExportInput& input, const ScalarForm& form) {
  const Calibration& calibration = input.calibration;
  std::vector<std::string> notes = weight_notes(input);
  if (has_head_scales(calibration))
    notes.push_back(std::string(form.title) +
                    "'s form has one scale for K and one for V of a layer: the largest of all "
                    "heads was taken");
  if (has_query_scales(calibration) && !form.has_queries)
    notes.push_back(std::string(form.title) +
                    "'s form has no scales of queries: they are not written");
  if (const auto note = ignored_layers_note(calibration)) notes.push_back(*note);
  // Tested: its mapper adds ".attn" to the names, and DeepSeek's loader adds it again.
  if (calibration.is_latent && !calibration.layers.empty()) notes.emplace_back(kLatentNote);
  return notes;
}

}  // namespace kvcal
