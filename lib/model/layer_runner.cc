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

void LayerRunner::normalize(const float* hidden, const Buffer& weight, int64_t rows) {
  backend_.rms_norm({.x = hidden,
                     .weight = weight.as<float>(),
                     .epsilon = config_.rms_norm_eps,
                     .rows = rows,
                     .width = config_.hidden_size,
                     .out_type = type_,
                     .out = normed_.data()});
}

void LayerRunner::project(const Buffer& x, const PackedMatrix& weight, const Buffer& bias,
                          int64_t rows, Buffer& out) {
  backend_.matmul({.x = x.data(),
                   .weight = weight,
                   .bias = bias.as<float>(),
                   .rows = rows,
                   .out = out.as<float>()});
}

void LayerRunner::add_projected(const Buffer& x, const PackedMatrix& weight, const Buffer& bias,
                                int64_t rows, float* hidden) {
  backend_.matmul({.x = x.data(),
                   .weight = weight,
                   .bias = bias.as<float>(),
                   .accumulate = true,
                   .rows = rows,
                   .out = hidden});
}

void LayerRunner::rotate(const HeadsView& heads, const TokenBatch& batch, const RopeTable& rope) {
  backend_.rope({.x = heads,
                 .positions = batch.positions.as<int32_t>(),
                 .cos = rope.cos(),
                 .sin = rope.sin(),
                 .rotary_dim = config_.head_dim});
}

LayerRunner::KeysValues LayerRunner::keys_values(const PackedLayer& layer, const float* hidden,
                                                 const TokenBatch& batch, const RopeTable& rope) {
  normalize(hidden, layer.input_norm, batch.num_tokens);
  project(normed_, *layer.key_value, layer.key_value_bias, batch.num_tokens, key_value_);
  HeadsView k{.data = key_value_.as<float>(),
              .tokens = batch.num_tokens,
              .heads = config_.num_key_value_heads,
              .head_dim = config_.head_dim,
              .row_stride = 2 * config_.kv_width()};
  HeadsView v = k;
  v.data += config_.kv_width();
  rotate(k, batch, rope);
  return {k, v};
}

void LayerRunner::finish(const PackedLayer& layer, int64_t layer_index, float* hidden,
                         const TokenBatch& batch, const RopeTable& rope, const KvStorage& storage) {
  const int64_t tokens = batch.num_tokens;
  project(normed_, *layer.query, layer.query_bias, tokens, query_);
  rotate({.data = query_.as<float>(),
          .tokens = tokens,
          .heads = config_.num_attention_heads,
          .head_dim = config_.head_dim,
          .row_stride = config_.query_width()},
         batch, rope);
  attend(layer_index, batch, storage);
  add_projected(attended_, *layer.output, layer.output_bias, tokens, hidden);

  normalize(hidden, layer.post_attention_norm, tokens);
  project(normed_, *layer.gate_up, layer.gate_up_bias, tokens, gate_up_);
  backend_.gated_activation({.gate_up = gate_up_.as<float>(),
                             .activation = config_.activation,
                             .rows = tokens,
                             .width = config_.intermediate_size,
                             .out_type = type_,
                             .out = activated_.data()});
  add_projected(activated_, *layer.down, layer.down_bias, tokens, hidden);
}

void LayerRunner::attend(int64_t layer_index, const TokenBatch& batch, const KvStorage& storage) {
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
}

}  // namespace kvcal
