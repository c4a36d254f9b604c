#include "export/layer_scales.h"
#include "export/scales_file_writer.h"
#include "stored/scales_file.h"

namespace kvcal {
namespace {

/// The file of --kv_quant_calibration_config_path. Source: LightLLM (docs/formats.md),
/// `FP8StaticPerHeadQuantMemManager`, `FP8StaticPerTensorQuantMemManager`.
class LightllmWriter : public ScalesFileWriter {
 public:
  LightllmWriter() : ScalesFileWriter("lightllm", kLightllmName) {}

  WrittenScales held(const AttentionCalibration& layer, int64_t) const override {
    return {layer.k.scales, layer.v.scales};
  }

 protected:
  void check_file(const ExportInput& input) const override {
    // It quantizes the latent by token, and takes no file.
    if (input.calibration.is_latent) fail(file(), " holds no scales of a latent (MLA) cache");
    check_has_every_layer(input.calibration);
    num_heads(input);
  }

  Json content(const ExportInput& input) const override {
    const bool is_per_head = has_head_scales(input.calibration);
    Json scales = Json::array();
    for (const AttentionCalibration& layer : layers_of_model(input.calibration)) {
      Json& row = scales.emplace_back(Json::array());
      for (const KvTensorCalibration* side : {&layer.k, &layer.v})
        // As double, from which a reader gets exactly the float32.
        for (const Scale& scale : side->scales) row.push_back(static_cast<double>(scale.value));
    }
    const auto largest = static_cast<double>(input.calibration.kv_format.largest_code());
    return {{"version", "1.0"},
            {"architectures", lightllm_architecture(input.model.config())},
            {"quant_type", is_per_head ? "per_head" : "per_tensor"},
            {"qmin", -largest},
            {"qmax", largest},
            {"num_layers", input.calibration.num_hidden_layers},
            {"num_head", num_heads(input)},
            {"scales_shape", {scales.size(), scales.front().size()}},
            {"scales", std::move(scales)}};
  }

  std::vector<std::string> file_notes(const ExportInput& input) const override {
    return {"LightLLM reads " + file() + " with --llm_kv_type " +
            (has_head_scales(input.calibration) ? "fp8kv_sph" : "fp8kv_spt") +
            " --kv_quant_calibration_config_path"};
  }

 private:
  /// KV heads of every layer, of all ranks. Throws Error where layers differ.
  int64_t num_heads(const ExportInput& input) const {
    const ModelConfig& config = input.model_config();
    int64_t heads = 0;
    for (const AttentionCalibration& layer : layers_of_model(input.calibration)) {
      const int64_t own = config.cache(layer.layer).heads;
      if (heads != 0 && own != heads)
        fail(layer.module, ": has ", counted(own, "KV head"), ", an earlier layer ", heads, "; ",
             file(), " holds one number for all");
      heads = own;
    }
    return heads;
  }
};

}  // namespace

std::unique_ptr<Writer> make_lightllm_writer() {
  return std::make_unique<LightllmWriter>();
}

}  // namespace kvcal
