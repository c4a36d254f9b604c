// Residual streams that gates mix, and the n-grams that are added to them.
#include <utility>

#include "forward/packed_layer.h"

namespace kvcal {
namespace {

class StreamPacker {
 public:
  StreamPacker(const Weights& weights, const ModelConfig& config, int64_t layer,
               SharedLinears& linears, ComputeType type)
      : weights_(weights), config_(config), layer_(layer), linears_(linears), type_(type) {}

  /// Of the layer, or of the model where that has the roles.
  PackedStreamMix mix(Role norm_role, Role down, Role up) const {
    return {.norm = norm(norm_role), .down = linear(down), .up = linear(up), .shares = {}};
  }

  PackedStreamMix mix(Role norm_role, Role down, Role up, Role shares) const {
    PackedStreamMix packed = mix(norm_role, down, up);
    packed.shares = linear(shares);
    return packed;
  }

  PackedNgrams ngrams() const {
    return {.key = linear(Role::kNgramKey),
            .value = linear(Role::kNgramValue),
            .key_norm = norm(Role::kNgramKeyNorm),
            .stream_norm = norm(Role::kNgramStreamNorm),
            .conv_norm = norm(Role::kNgramConvNorm),
            .conv_weight = {spread_taps(), linears_.backend()}};
  }

 private:
  int64_t layer_of(Role role) const { return weights_.has(role) ? kNoLayer : layer_; }

  PackedNorm norm(Role role) const {
    std::vector<float> values = as_float32(weights_.rows(layer_of(role), role).parts);
    if (config_.architecture->norm_adds_one)
      for (float& value : values) value += 1.0f;
    return {.weight = {std::move(values), linears_.backend()}};
  }

  PackedLinear linear(Role role) const {
    return linears_.take([&] {
      const int64_t layer = layer_of(role);
      const LinearRows rows =
          linear_rows(weights_, weights_.quantization(layer, role), layer, role);
      auto packed = pack_linear({&rows, 1}, linears_.group(), type_);
      weights_.drop(layer, role, 0);
      return packed;
    });
  }

  /// The convolution's weights, [channels, convolved_rows], with zeros between the taps.
  std::vector<float> spread_taps() const {
    const std::vector<float> taps = as_float32(weights_.rows(layer_, Role::kNgramConv).parts);
    const auto kernel = static_cast<size_t>(config_.ngrams.kernel);
    const auto rows = static_cast<size_t>(config_.ngrams.convolved_rows());
    const auto apart = static_cast<size_t>(config_.ngrams.longest);
    std::vector<float> spread(taps.size() / kernel * rows, 0.0f);
    for (size_t i = 0; i < taps.size(); ++i)
      spread[i / kernel * rows + i % kernel * apart] = taps[i];
    return spread;
  }

  const Weights& weights_;
  const ModelConfig& config_;
  int64_t layer_;
  SharedLinears& linears_;
  ComputeType type_;
};

}  // namespace

void pack_gated_streams(const Weights& weights, const ModelConfig& config, int64_t layer,
                        LayerParts parts, SharedLinears& linears, ComputeType type,
                        PackedLayer& packed) {
  using enum Role;
  const StreamPacker packer(weights, config, layer, linears, type);
  packed.attention_mix =
      packer.mix(kAttentionMixNorm, kAttentionMixDown, kAttentionMixUp, kAttentionShares);
  if (config.layer(layer).has_ngrams) packed.ngrams = packer.ngrams();
  if (parts == LayerParts::kKeyValue) return;
  packed.mlp_mix = packer.mix(kMlpMixNorm, kMlpMixDown, kMlpMixUp, kMlpShares);
  if (layer + 1 == config.num_hidden_layers)
    packed.final_mix = packer.mix(kFinalMixNorm, kFinalMixDown, kFinalMixUp);
}

}  // namespace kvcal
