#include <algorithm>

#include "export/layer_scales.h"
#include "export/writer.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr int64_t kMaxTpSize = 1024;

class ScalesJsonWriter : public Writer {
 public:
  void check(const ExportInput& input) const override {
    check_calibration(input.calibration);
    if (input.calibration.layers.empty())
      fail(kScalesJsonName, " holds KV scales, the recipe asks for none");
    check_covers_model(input.model, input.calibration);
    // Readers only know E4M3FN, also on ROCm, where they double the scales; E5M2 is for kvcal
    // itself.
    if (input.calibration.kv_format == fp8::Format::kE4m3Fnuz)
      fail(kScalesJsonName,
           " holds scales of float8_e4m3fn or float8_e5m2, the calibration has those of ",
           fp8::name_of(input.calibration.kv_format));
    if (input.scale_in_model_dtype)
      fail(kScalesJsonName, " holds no dtype; scale dtype 'model' is not for it");
    if (input.tp_size < 1 || input.tp_size > kMaxTpSize)
      fail("tensor parallel size ", input.tp_size, ", expected 1 to ", kMaxTpSize);
    required_string(input.model.config(), "model_type");
    for (const AttentionCalibration& layer : input.calibration.layers)
      in_context(layer.module, [&] { tied_over_ranks(layer.k.scales, input.tp_size); });
    check_every_layer(input.calibration.num_hidden_layers, input.calibration);
  }

  FormatParts parts(const ExportInput& input) const override {
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
    scales["kv_cache"]["dtype"] = fp8::name_of(input.calibration.kv_format);
    scales["kv_cache"]["scaling_factor"] = std::move(ranks);
    FormatParts parts{.has_checkpoint = false};
    parts.files.emplace(kScalesJsonName, dump_json(scales, 4));
    return parts;
  }

  WrittenScales held(const AttentionCalibration& layer, int64_t tp_size) const override {
    std::vector<Scale> scales;
    for (int64_t rank = 0; rank < tp_size; ++rank)
      scales.push_back(rank_scale(layer, rank, tp_size));
    return {scales, scales};
  }

  std::vector<std::string> notes(const ExportInput& input) const override {
    std::vector<std::string> notes;
    const std::string file(kScalesJsonName);
    if (has_head_scales(input.calibration))
      notes.push_back(file + (input.tp_size == 1
                                  ? " has one scale a layer: the largest of all heads was taken"
                                  : " has one scale a layer and rank: the largest of the rank's "
                                    "heads was taken"));
    if (input.calibration.kv_format == fp8::Format::kE5m2)
      notes.push_back(file + " of float8_e5m2 is read by no engine we know");
    if (input.calibration.plan.quantizes_weights())
      notes.push_back(file + " holds KV scales alone: weights and inputs are not in it");
    if (layers_of_model(input.calibration).size() < input.calibration.layers.size())
      notes.push_back(file + " has no scales of the draft layer");
    if (has_query_scales(input.calibration)) notes.push_back(file + " has no scales of queries");
    return notes;
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

  /// Readers need every layer, and use 1.0 for all layers if one is missing.
  static void check_every_layer(int64_t count, const Calibration& calibration) {
    int64_t next = 0;
    for (const AttentionCalibration& layer : layers_of_model(calibration)) {
      if (layer.ignored)
        fail(layer.module, " is ignored and has no scale; ", kScalesJsonName,
             " must have one for every layer");
      if (layer.layer != next) break;
      ++next;
    }
    if (next != count || layers_of_model(calibration).size() != static_cast<size_t>(count))
      fail("layer ", next, " has no scale; ", kScalesJsonName, " must have one for each of ", count,
           " layers");
  }
};

}  // namespace

std::unique_ptr<Writer> make_scales_json_writer() {
  return std::make_unique<ScalesJsonWriter>();
}

}  // namespace kvcal
