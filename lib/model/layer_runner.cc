#include "model/layer_runner.h"

#include <cmath>

namespace kvcal {
namespace {

struct WidthsPerToken {
  size_t normed, query, key_value, attended, gate_up, activated;
  size_t sum() const { return normed + query + key_value + attended + gate_up + activated; }
};

WidthsPerToken bytes_per_token_of(const ModelConfig& config, ComputeType type) {
  const auto hidden = static_cast<size_t>(config.hidden_size),
             query = static_cast<size_t>(config.query_width());
  const auto kv = static_cast<size_t>(config.kv_width()),
             intermediate = static_cast<size_t>(config.intermediate_size);
  const size_t element = bytes_of(type);
  return {.normed = hidden * element,
          .query = query * sizeof(float),
          .key_value = 2 * kv * sizeof(float),
          .attended = query * element,
          .gate_up = 2 * intermediate * sizeof(float),
          .activated = intermediate * element};
}

}  // namespace

size_t LayerRunner::bytes_per_token(const ModelConfig& config, ComputeType type) {
  return bytes_per_token_of(config, type).sum();
}

LayerRunner::LayerRunner(const ModelConfig& config, Backend& backend, ComputeType type,
                         int64_t max_tokens)
    : config_(config), backend_(backend), type_(type) {
  const WidthsPerToken bytes = bytes_per_token_of(config, type);
  const auto tokens = static_cast<size_t>(max_tokens);
  normed_ = backend.allocate(tokens * bytes.normed);
  query_ = backend.allocate(tokens * bytes.query);
  key_value_ = backend.allocate(tokens * bytes.key_value);
  attended_ = backend.allocate(tokens * bytes.attended);
  gate_up_ = backend.allocate(tokens * bytes.gate_up);
  activated_ = backend.allocate(tokens * bytes.activated);
}

LayerRunner::KeysValues LayerRunner::keys_values(const PackedLayer& layer, const float* hidden,
                                                 const TokenBatch& batch, const RopeTable& rope) {
  backend_.rms_norm({.x = hidden,
                     .weight = layer.input_norm.as<float>(),
                     .epsilon = config_.rms_norm_eps,
                     .rows = batch.num_tokens,
                     .width = config_.hidden_size,
                     .out_type = type_,
                     .out = normed_.data()});
  backend_.matmul({.x = normed_.data(),
                   .weight = *layer.key_value,
                   .bias = layer.key_value_bias.as<float>(),
                   .rows = batch.num_tokens,
                   .out = key_value_.as<float>()});
  HeadsView k{.data = key_value_.as<float>(),
              .tokens = batch.num_tokens,
              .heads = config_.num_key_value_heads,
              .head_dim = config_.head_dim,
              .row_stride = 2 * config_.kv_width()};
  HeadsView v = k;
  v.data += config_.kv_width();
  backend_.rope({.x = k,
                 .positions = batch.positions.as<int32_t>(),
                 .cos = rope.cos(),
                 .sin = rope.sin(),
                 .rotary_dim = config_.head_dim});
  return {k, v};
}

void LayerRunner::finish(const PackedLayer& layer, int64_t layer_index, float* hidden,
                         const TokenBatch& batch, const RopeTable& rope, const KvStorage& storage) {
  attend(layer, layer_index, hidden, batch, rope, storage);
  feed_forward(layer, hidden, batch);
}

void LayerRunner::attend(const PackedLayer& layer, int64_t layer_index, float* hidden,
                         const TokenBatch& batch, const RopeTable& rope, const KvStorage& storage) {
  backend_.matmul({.x = normed_.data(),
                   .weight = *layer.query,
                   .bias = layer.query_bias.as<float>(),
                   .rows = batch.num_tokens,
                   .out = query_.as<float>()});
  backend_.rope({.x = {.data = query_.as<float>(),
                       .tokens = batch.num_tokens,
                       .heads = config_.num_attention_heads,
                       .head_dim = config_.head_dim,
                       .row_stride = config_.query_width()},
                 .positions = batch.positions.as<int32_t>(),
                 .cos = rope.cos(),
                 .sin = rope.sin(),
                 .rotary_dim = config_.head_dim});
  backend_.attention({.q = query_.as<float>(),
                      .q_row_stride = config_.query_width(),
                      .k = storage.k,
                      .v = storage.v,
                      .kv_dtype = storage.dtype,
                      .k_scales = storage.k_scales,
                      .v_scales = storage.v_scales,
                      .segments = batch.segments,
                      .heads = config_.num_attention_heads,
                      .kv_heads = config_.num_key_value_heads,
                      .head_dim = config_.head_dim,
                      .softmax_scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                      .sliding_window = config_.sliding_window[static_cast<size_t>(layer_index)],
                      .out_type = type_,
                      .out = attended_.data()});
  backend_.matmul({.x = attended_.data(),
                   .weight = *layer.output,
                   .bias = layer.output_bias.as<float>(),
                   .accumulate = true,
                   .rows = batch.num_tokens,
                   .out = hidden});
}

void LayerRunner::feed_forward(const PackedLayer& layer, float* hidden, const TokenBatch& batch) {
  backend_.rms_norm({.x = hidden,
                     .weight = layer.post_attention_norm.as<float>(),
                     .epsilon = config_.rms_norm_eps,
                     .rows = batch.num_tokens,
                     .width = config_.hidden_size,
                     .out_type = type_,
                     .out = normed_.data()});
  backend_.matmul({.x = normed_.data(),
                   .weight = *layer.gate_up,
                   .bias = layer.gate_up_bias.as<float>(),
                   .rows = batch.num_tokens,
                   .out = gate_up_.as<float>()});
  backend_.gated_activation({.gate_up = gate_up_.as<float>(),
                             .activation = config_.activation,
                             .rows = batch.num_tokens,
                             .width = config_.intermediate_size,
                             .out_type = type_,
                             .out = activated_.data()});
  backend_.matmul({.x = activated_.data(),
                   .weight = *layer.down,
                   .bias = layer.down_bias.as<float>(),
                   .accumulate = true,
                   .rows = batch.num_tokens,
                   .out = hidden});
}

Buffer upload_int32(std::span<const int32_t> values, Backend& backend) {
  Buffer buffer = backend.allocate(values.size_bytes());
  backend.copy_in(std::as_bytes(values), buffer.data());
  return buffer;
}

}  // namespace kvcal
