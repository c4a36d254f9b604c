#include <algorithm>

#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr std::string_view kTitle = "vLLM-Ascend's form";

/// What a description says of a tensor that is as the model runs it.
constexpr std::string_view kPlain = "FLOAT";

/// 16-bit weights with an INT8 cache by channel ("C8"). Source: vllm-ascend 182b75ea
/// quantization/methods/kv_c8.py, attention/attention_v1.py `_prepare_c8_scales`, which views the
/// scales as [heads, head_dim].
class AscendWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    const Calibration& calibration = input.calibration;
    check_is_kv_only(calibration, std::string(kTitle) + " keeps 16-bit weights");
    check_holds(calibration, "ascend");
    if (input.kept)
      fail(kTitle, " is of 16-bit weights here, and the source's are quantized (quant_method '",
           input.kept->format, "')");
    if (input.scale_in_model_dtype)
      fail(kTitle, "'s scales are float32; scale dtype 'model' is not for them");
    check_is_unquantized(input.model);
    check_covers_model(input.model, calibration);
    for (const AttentionCalibration& layer : layers_of_model(calibration)) {
      if (layer.ignored) continue;
      if (!layer.module.ends_with(".self_attn"))
        fail(layer.module, ": vLLM-Ascend has no place for ", names().k,
             " of modules not named self_attn");
      check_layer(input, layer);
    }
  }

  FormatParts parts(const ExportInput& input) const override {
    FormatParts parts;
    Json description = {{std::string(kAscendCacheKey), kAscendCacheWord},
                        {"model_quant_type", kPlain}};
    for (const std::string& name : input.model.tensor_names()) description[name] = kPlain;
    const auto add = [&](std::string name, Shape shape, const std::vector<Scale>& values) {
      description[name] = kAscendCacheWord;
      parts.tensors.push_back(scale_tensor(std::move(name), std::move(shape), values, DType::kF32));
    };
    for (const AttentionCalibration& layer : layers_of_model(input.calibration)) {
      if (layer.ignored) continue;
      const LayerCache& cache = input.model_config().cache(layer.layer);
      for (const auto& [name, side, head_dim] :
           {std::tuple{names().k, &layer.k, cache.k_dim}, {names().v, &layer.v, cache.v_dim}}) {
        const std::string scale = layer.module + std::string(name);
        const int64_t channels = cache.heads * head_dim;
        add(scale, Shape{channels}, spread_scales(side->scales, channels));
        add(zero_point_name(scale, true), Shape{channels},
            std::vector<Scale>(static_cast<size_t>(channels), Scale{0.0f}));
      }
    }
    parts.files.emplace(kAscendDescriptionName, dump_json(description, 4));
    return parts;
  }

  WrittenScales held(const AttentionCalibration& layer, int64_t) const override {
    return {layer.k.scales, layer.v.scales};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes{
        "vLLM-Ascend reads " + std::string(kAscendDescriptionName) +
        " with --quantization ascend; it keeps these scales in the dtype that it runs the model "
        "in, and serves blocks whose size is a multiple of 32"};
    if (layers_of_model(input.calibration).size() < input.calibration.layers.size())
      notes.push_back(std::string(kTitle) + " has no scales of the draft layer");
    if (has_query_scales(input.calibration))
      notes.push_back(std::string(kTitle) + " has no scales of queries: they are not written");
    return notes;
  }

 private:
  static const KvScaleNames& names() { return kv_scale_format("ascend"); }

  static void check_layer(const ExportInput& input, const AttentionCalibration& layer) {
    const DType dtype = run_dtype(input.model, layer.module);
    std::vector<std::string> added;
    for (const auto& [name, side] : {std::pair{names().k, &layer.k}, {names().v, &layer.v}}) {
      added.push_back(layer.module + std::string(name));
      added.push_back(zero_point_name(added.back(), true));
      const Scale least = *std::ranges::min_element(side->scales, {}, &Scale::value);
      check_survives(added.front(), least, dtype,
                     std::string(name_of(dtype)) + ", in which vLLM-Ascend holds it");
    }
    check_tensors_are_new(input.model, added);
  }
};

}  // namespace

std::unique_ptr<Writer> make_ascend_writer() {
  return std::make_unique<AscendWriter>();
}

}  // namespace kvcal
