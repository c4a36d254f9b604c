#include "export/scalar_scales.h"

#include "export/attention_scales.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"

namespace kvcal {
namespace {

/// vLLM holds these scales in the 16-bit dtype that it runs the model in, and runs none of these
/// methods in float32. Source: vLLM 0.32, `KVCacheScaleParameter`, whose tensor gets torch's
/// default dtype, and `get_supported_act_dtypes`.
void check_layer_scales(const ModelDir& model, const AttentionCalibration& layer,
                        const KvForm& form) {
  std::vector<std::string> names;
  // Scales by other names would win over ours, or be taken for an error.
  for (const KvForm& other : kv_forms())
    for (const std::string_view name : {other.k, other.v})
      names.push_back(layer.module + std::string(name));
  check_tensors_are_new(model, names);
  const DType dtype = run_dtype(model, layer.module);
  const std::string where = std::string(name_of(dtype)) + ", in which vLLM holds it";
  check_survives(layer.module + std::string(form.k), largest_of(layer.k.scales), dtype, where);
  check_survives(layer.module + std::string(form.v), largest_of(layer.v.scales), dtype, where);
}

}  // namespace

void check_scalar_scales(const ExportInput& input, const KvForm& form, std::string_view title) {
  const Calibration& calibration = input.calibration;
  check_is_kv_only(calibration, std::string(title) + "'s form keeps 16-bit weights");
  if (calibration.kv_format != fp8::Format::kE4m3Fn)
    fail(title, "'s form holds scales of E4M3FN, the calibration has another format");
  if (input.scale_in_model_dtype)
    fail(title, "'s scales are float32; scale dtype 'model' is not for them");
  check_is_unquantized(input.model);
  check_covers_model(input.model, calibration);
  for (const AttentionCalibration& layer : calibration.layers)
    if (!layer.ignored) check_layer_scales(input.model, layer, form);
}

std::vector<Tensor> scalar_scales(const Calibration& calibration, const KvForm& form) {
  std::vector<Tensor> tensors;
  const auto add = [&](const AttentionCalibration& layer, std::string_view name,
                       const KvTensorCalibration& side) {
    tensors.push_back(scale_tensor(layer.module + std::string(name), Shape{},
                                   {largest_of(side.scales)}, DType::kF32));
  };
  for (const AttentionCalibration& layer : calibration.layers) {
    if (layer.ignored) continue;
    add(layer, form.k, layer.k);
    add(layer, form.v, layer.v);
  }
  return tensors;
}

void write_scalar_checkpoint(const ExportInput& input, const KvForm& form,
                             const Json& quantization_config, const std::filesystem::path& folder) {
  Json config = input.model.config();
  config["quantization_config"] = quantization_config;
  copy_sidecar_files(input.model, folder);
  copy_weights(input.model, scalar_scales(input.calibration, form), folder);
  write_text_file(folder / "config.json", config_text(config));
  write_vllm_arguments(input.calibration, folder);
}

std::vector<std::string> scalar_scale_notes(const Calibration& calibration,
                                            std::string_view title) {
  std::vector<std::string> notes;
  if (has_head_scales(calibration))
    notes.push_back(std::string(title) +
                    "'s form has one scale for K and one for V of a layer: the largest of all "
                    "heads was taken");
  if (has_query_scales(calibration))
    notes.push_back(std::string(title) + "'s form has no scales of queries: they are not written");
  if (const auto note = ignored_layers_note(calibration)) notes.push_back(*note);
  // Seen: its mapper of names adds ".attn" to them, and DeepSeek's loader adds it again.
  if (calibration.is_latent) notes.emplace_back(kLatentNote);
  return notes;
}

}  // namespace kvcal
