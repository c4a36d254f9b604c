#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/writer.h"

namespace kvcal {
namespace {

constexpr std::string_view kFileName = "kv_cache_scales.json";
constexpr int64_t kMaxTpSize = 1024;

class ScalesJsonWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    check_calibration(input.calibration);
    check_covers_model(input.model, input.calibration);
    if (input.calibration.kv_format != fp8::Format::kE4m3Fn)
      fail(kFileName, " holds scales of float8_e4m3fn, the calibration has another format");
    if (input.scale_in_model_dtype)
      fail(kFileName, " holds no dtype; scale dtype 'model' is not for it");
    if (input.tp_size < 1 || input.tp_size > kMaxTpSize)
      fail("tensor parallel size ", input.tp_size, ", expected 1 to ", kMaxTpSize);
    required_string(input.model.config(), "model_type");
    check_every_layer(input.calibration.num_hidden_layers, input.calibration);
  }

  void write(const ExportInput& input, const std::filesystem::path& folder) const override {
    Json layers = Json::object();
    for (const AttentionCalibration& layer : input.calibration.layers)
      // As double: what a reader gets is the float32, exactly.
      layers[std::to_string(layer.layer)] = static_cast<double>(shared_scale(layer).value);
    Json ranks = Json::object();
    for (int64_t rank = 0; rank < input.tp_size; ++rank) ranks[std::to_string(rank)] = layers;
    Json scales = Json::object();
    scales["model_type"] = required_string(input.model.config(), "model_type");
    scales["kv_cache"]["dtype"] = "float8_e4m3fn";
    scales["kv_cache"]["scaling_factor"] = std::move(ranks);
    write_text_file(folder / kFileName, dump_json(scales, 4));
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    if (!has_head_scales(input.calibration)) return {};
    return {std::string(kFileName) + " has one scale a layer: the largest of all heads was taken"};
  }

 private:
  /// The readers want every layer and fall back to 1.0 for all of them when one is missing.
  static void check_every_layer(int64_t count, const Calibration& calibration) {
    int64_t next = 0;
    for (const AttentionCalibration& layer : calibration.layers) {
      if (layer.ignored)
        fail(layer.module, " is ignored and has no scale; ", kFileName,
             " must have one for every layer");
      if (layer.layer != next) break;
      ++next;
    }
    if (next != count || calibration.layers.size() != static_cast<size_t>(count))
      fail("layer ", next, " has no scale; ", kFileName, " must have one for each of ", count,
           " layers");
  }
};

}  // namespace

std::unique_ptr<Writer> make_scales_json_writer() {
  return std::make_unique<ScalesJsonWriter>();
}

}  // namespace kvcal
