// Source: transformers 5.23, models/gemma3n `Gemma3nTextAltUp` and `Gemma3nTextModel`.
#include "forward/packed_layer.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

/// Reads the tensors of one layer's streams.
struct StreamRows {
  const Weights& weights;
  const ModelConfig& config;
  int64_t layer;
  LinearTurns& linears;

  /// A matrix of the layer, as float32.
  PackedLinear small(Role role) const {
    return linears.take([&] {
      const WeightRows source = weights.rows(layer, role);
      const LinearRows rows{source.parts, {}, weights.quantization(layer, role)};
      auto packed = pack_linear(std::span(&rows, 1), linears.group(), ComputeType::kFloat32);
      weights.drop(layer, role, 0);
      return packed;
    });
  }

  /// The model's matrices of all further streams.
  std::vector<PackedLinear> further(Role role, ComputeType type) const {
    std::vector<PackedLinear> packed;
    for (int64_t i = 0; i + 1 < config.streams; ++i)
      packed.push_back(linears.take([&] {
        const LinearQuantization* quantization = weights.quantization(role, i);
        const WeightRows source =
            multiplies_codes(quantization) ? weights.codes(role, i) : weights.rows_to_pack(role, i);
        const LinearRows rows{source.parts, source.row_scales, quantization, source.decoded};
        return pack_linear(std::span(&rows, 1), linears.group(), type);
      }));
    weights.drop(role);
    return packed;
  }

  std::vector<float> values(Role role, float factor) const {
    std::vector<float> all = as_float32(weights.rows(layer, role).parts);
    for (float& value : all) value *= factor;
    return all;
  }
};

}  // namespace

PackedStreams pack_streams(const Weights& weights, const ModelConfig& config, int64_t layer,
                           LayerParts parts, LinearTurns& linears, ComputeType type) {
  Backend& backend = linears.backend();
  const StreamRows rows{weights, config, layer, linears};
  PackedStreams packed;
  if (layer == 0) packed.projections = rows.further(Role::kStreamProjection, type);
  packed.router_norm.weight = {
      rows.values(Role::kStreamRouterNorm, 1.0f / static_cast<float>(config.hidden_size)), backend};
  packed.router = rows.small(Role::kStreamRouter);
  packed.prediction = rows.small(Role::kStreamPrediction);
  if (parts == LayerParts::kKeyValue) return packed;
  packed.correction = rows.small(Role::kStreamCorrection);
  packed.correction.bias = {std::vector<float>(static_cast<size_t>(config.streams), 1.0f), backend};
  if (config.scales_active_stream) packed.scale = {rows.values(Role::kStreamScale, 1.0f), backend};
  if (layer + 1 == config.num_hidden_layers)
    packed.outputs = rows.further(Role::kStreamOutput, type);
  return packed;
}

}  // namespace kvcal
