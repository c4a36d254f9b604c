#include "export/layer_scales.h"
#include "export/scales_file_writer.h"
#include "stored/scales_file.h"

namespace kvcal {
namespace {

/// The builder's kv_cache_scale_file. Source: ONNX Runtime GenAI 0.18 models/builders/base.py,
/// `make_kv_cache_scale_initializers`.
class OnnxruntimeGenaiWriter : public ScalesFileWriter {
 public:
  OnnxruntimeGenaiWriter() : ScalesFileWriter("onnxruntime-genai", kOnnxruntimeGenaiName) {}

  WrittenScales held(const AttentionCalibration& layer, int64_t) const override {
    return {layer.k.scales, layer.v.scales};
  }

 protected:
  void check_file(const ExportInput& input) const override {
    if (input.calibration.is_latent) fail(file(), " holds no scales of a latent (MLA) cache");
    if (has_head_scales(input.calibration)) check_shapes(input);
  }

  Json content(const ExportInput& input) const override {
    Json k = Json::array(), v = Json::array(), ids = Json::array();
    for (const AttentionCalibration& layer : layers_of_model(input.calibration)) {
      k.push_back(side_scales(input, layer, layer.k));
      v.push_back(side_scales(input, layer, layer.v));
      ids.push_back(layer.layer);
    }
    // With its own largest code of the cache the builder takes the scales as they are.
    const KvFormat& format = input.calibration.kv_format;
    return {{"scales", {{"k_scales", std::move(k)}, {"v_scales", std::move(v)}}},
            {"qmax", format.is_int8() ? kOnnxruntimeGenaiInt8Most
                                      : static_cast<double>(format.largest_code())},
            {"layer_ids", std::move(ids)}};
  }

  std::vector<std::string> file_notes(const ExportInput& input) const override {
    const std::string scales = has_head_scales(input.calibration) ? "per_channel" : "per_tensor";
    if (input.calibration.kv_format.is_int8())
      return {"ONNX Runtime GenAI's builder reads " + file() +
              " with --extra_options kv_cache_quant_scheme=int8_" + scales +
              " kv_cache_scale_file=" + file() + ", for CPUs too"};
    return {"ONNX Runtime GenAI's builder reads " + file() +
            " with --extra_options kv_cache_quant_scheme=fp8_" + scales +
            " kv_cache_scale_file=" + file() + " for CUDA; for int8_" + scales +
            ", which CPUs run too, it makes amax / 128 of them"};
  }

 private:
  /// The builder has one number of heads and one width for the K and V of all layers.
  void check_shapes(const ExportInput& input) const {
    const ModelConfig& config = input.model_config();
    const LayerCache* first = nullptr;
    for (const AttentionCalibration& layer : layers_of_model(input.calibration)) {
      const LayerCache& own = config.cache(layer.layer);
      if (!first) first = &own;
      if (own.heads != first->heads || own.k_dim != first->k_dim || own.v_dim != own.k_dim)
        fail(layer.module, ": has ", counted(own.heads, "KV head"), " of ", own.k_dim, " (K) and ",
             own.v_dim, " (V) channels; ", file(), " holds scales of channels where all have ",
             first->heads, " of ", first->k_dim);
    }
  }

  /// A number, or one a channel: that of its head. As double, from which a reader gets exactly the
  /// float32.
  static Json side_scales(const ExportInput& input, const AttentionCalibration& layer,
                          const KvTensorCalibration& side) {
    if (!has_head_scales(input.calibration)) return static_cast<double>(side.scales[0].value);
    const LayerCache& cache = input.model_config().cache(layer.layer);
    Json channels = Json::array();
    for (const Scale& scale : spread_scales(side.scales, cache.heads * cache.k_dim))
      channels.push_back(static_cast<double>(scale.value));
    return channels;
  }
};

}  // namespace

std::unique_ptr<Writer> make_onnxruntime_genai_writer() {
  return std::make_unique<OnnxruntimeGenaiWriter>();
}

}  // namespace kvcal
