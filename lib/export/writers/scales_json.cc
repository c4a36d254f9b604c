#include <algorithm>

#include "export/layer_scales.h"
#include "export/scales_file_writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr int64_t kMaxTpSize = 1024;

class ScalesJsonWriter : public ScalesFileWriter {
 public:
  ScalesJsonWriter() : ScalesFileWriter("scales-json", kScalesJsonName) {}

  WrittenScales held(const AttentionCalibration& layer, int64_t tp_size) const override {
    std::vector<Scale> scales;
    for (int64_t rank = 0; rank < tp_size; ++rank)
      scales.push_back(rank_scale(layer, rank, tp_size));
    return {scales, scales};
  }

 protected:
  void check_file(const ExportInput& input) const override {
    if (input.tp_size < 1 || input.tp_size > kMaxTpSize)
      fail("tensor parallel size ", input.tp_size, ", expected 1 to ", kMaxTpSize);
    required_string(input.model.config(), "model_type");
    for (const AttentionCalibration& layer : input.calibration.layers)
      in_context(layer.module, [&] { tied_over_ranks(layer.k.scales, input.tp_size); });
    // Readers use 1.0 for all layers if one is missing.
    check_has_every_layer(input.calibration);
  }

  Json content(const ExportInput& input) const override {
    Json ranks = Json::object();
    for (int64_t rank = 0; rank < input.tp_size; ++rank) {
      Json& layers = ranks[std::to_string(rank)] = Json::object();
      for (const AttentionCalibration& layer : layers_of_model(input.calibration))
        // As double, from which a reader gets exactly the float32.
        layers[std::to_string(layer.layer)] =
            static_cast<double>(rank_scale(layer, rank, input.tp_size).value);
    }
    Json scales = Json::object();
    scales["model_type"] = required_string(input.model.config(), "model_type");
    scales["kv_cache"]["dtype"] = name_of(input.calibration.kv_format);
    scales["kv_cache"]["scaling_factor"] = std::move(ranks);
    return scales;
  }

  std::vector<std::string> file_notes(const ExportInput& input) const override {
    std::vector<std::string> notes;
    if (has_head_scales(input.calibration))
      notes.push_back(file() + (input.tp_size == 1
                                    ? " has one scale a layer: the largest of all heads was taken"
                                    : " has one scale a layer and rank: the largest of the rank's "
                                      "heads was taken"));
    if (input.calibration.kv_format == fp8::Format::kE5m2)
      notes.push_back(file() + " of float8_e5m2 is read by no engine we know");
    return notes;
  }

  /// Readers only know E4M3FN, also on ROCm, where they double the scales; E5M2 is for kvcal
  /// itself.
  std::vector<fp8::Format> formats() const override {
    return {fp8::Format::kE4m3Fn, fp8::Format::kE5m2};
  }

 private:
  /// Largest scale of K and V over the heads of a rank.
  static Scale rank_scale(const AttentionCalibration& layer, int64_t rank, int64_t num_ranks) {
    if (num_ranks == 1 || layer.k.scales.size() == 1) return shared_scale(layer);
    const auto heads = static_cast<int64_t>(layer.k.scales.size());
    // Tied heads share one value, so the rank's first head has it.
    const auto head = static_cast<size_t>(rank * heads / num_ranks);
    return {std::max(tied_over_ranks(layer.k.scales, num_ranks)[head].value,
                     tied_over_ranks(layer.v.scales, num_ranks)[head].value)};
  }
};

}  // namespace

std::unique_ptr<Writer> make_scales_json_writer() {
  return std::make_unique<ScalesJsonWriter>();
}

}  // namespace kvcal
