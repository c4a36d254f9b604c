// What lies outside of the layers: between the embedding's table and the first layer, and behind
// the last one.
#include <span>
#include <utility>

#include "core/error.h"
#include "family/architecture.h"
#include "forward/norm_weights.h"
#include "forward/packed_layer.h"

namespace kvcal {

void normalize(Backend& backend, const ModelConfig& config, const PackedNorm& norm,
               const NormRows& rows) {
  if (!norm.exists()) {  // a model without a final norm
    KVCAL_CHECK(!rows.seen);
    return convert(backend, rows.x, rows.rows, config.hidden_size, rows.type, rows.out);
  }
  backend.norm({.x = rows.x,
                .weight = norm.weight.get(),
                .bias = norm.bias.get(),
                .centered = config.centers_norm,
                .epsilon = config.norm_eps,
                .rows = rows.rows,
                .width = config.hidden_size,
                .out_type = rows.type,
                .out = rows.out,
                .seen = rows.seen});
}

namespace {

/// A norm outside of the layers, times multiplier; of ones where it has no weight.
PackedNorm model_norm(const Weights& weights, const ModelConfig& config, Role role,
                      float multiplier, Backend& backend) {
  if (!weights.has(role)) return {.weight = ones(config.hidden_size, backend)};
  PackedNorm packed;
  packed.weight = {multiplied(norm_weight(std::span(&weights.at(role), 1), config), multiplier),
                   backend};
  if (const auto bias = bias_of(role); bias && weights.has(*bias))
    packed.bias = {multiplied(as_float32(std::span(&weights.at(*bias), 1)), multiplier), backend};
  return packed;
}

/// A matrix outside of the layers, for the group's first backend.
PackedLinear model_linear(const Weights& weights, const LinearQuantization* quantization, Role role,
                          PackGroup& group, ComputeType type) {
  const LinearRows rows = linear_rows(weights, quantization, kNoLayer, role);
  return std::move(pack_linear(std::span(&rows, 1), group, type).front());
}

/// Leaves out the rows of lm_head behind those of the logits, where it is padded.
void drop_padding(int64_t count, WeightRows& rows) {
  for (TensorView& part : rows.parts)
    if (part.shape[0] > count) part = rows_of(part, 0, count);
  for (DecodedRows& part : rows.decoded) part.count = std::min(part.count, count);
  if (std::ssize(rows.row_scales) > count) rows.row_scales.resize(static_cast<size_t>(count));
}

}  // namespace

PackedNorm pack_final_norm(const Weights& weights, const ModelConfig& config, Backend& backend) {
  if (!config.has_final_norm) return {};
  return model_norm(weights, config, Role::kFinalNorm, config.head_input_multiplier, backend);
}

PackedEmbedding pack_embedding(const Weights& weights, const ModelConfig& config, PackGroup& group,
                               ComputeType type) {
  PackedEmbedding packed;
  packed.type = type;
  if (weights.has(Role::kEmbeddingIn))
    packed.projection = model_linear(weights, weights.quantization(Role::kEmbeddingIn),
                                     Role::kEmbeddingIn, group, type);
  if (config.architecture->norms_embedding || weights.has(Role::kEmbeddingNorm))
    packed.norm =
        model_norm(weights, config, Role::kEmbeddingNorm, 1.0f, *group.backends().front());
  return packed;
}

PackedHeadInput pack_head_input(const Weights& weights, const ModelConfig& config, PackGroup& group,
                                ComputeType type) {
  PackedHeadInput packed;
  packed.norm = pack_final_norm(weights, config, *group.backends().front());
  if (weights.has(Role::kEmbeddingOut))
    packed.projection = model_linear(weights, weights.quantization(Role::kEmbeddingOut),
                                     Role::kEmbeddingOut, group, type);
  return packed;
}

PackedLinear pack_output_embedding(const Weights& weights, const ModelConfig& config,
                                   PackGroup& group, ComputeType type) {
  Backend& backend = *group.backends().front();
  LinearRows rows =
      linear_rows(weights, weights.output_quantization(), kNoLayer, weights.output_embedding());
  drop_padding(config.output_vocab_size, rows.rows);
  PackedLinear packed = std::move(pack_linear(std::span(&rows, 1), group, type).front());
  if (weights.has(Role::kLmHeadBias))
    packed.bias = {as_float32(std::span(&weights.at(Role::kLmHeadBias), 1)), backend};
  return packed;
}

}  // namespace kvcal
