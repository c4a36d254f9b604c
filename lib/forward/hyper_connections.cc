#include "forward/hyper_connections.h"

namespace kvcal {

const float* HyperConnections::enter_attention(const float* hidden) {
  const int64_t width = config_.hidden_size;
  float* planes = buffers_.predicted.as<float>();
  for (int64_t i = 0; i < config_.streams; ++i) {
    const int64_t from = context_.layer_index == 0 ? 0 : i;
    copy(hidden + from * stream_size(), view(planes + i * stream_size(), width));
  }
  collapse(buffers_.predicted, layer().attention_connection);
  return input();
}

void HyperConnections::leave_attention() {
  expand(buffers_.predicted, buffers_.streams.as<float>());
  collapse(buffers_.streams, layer().mlp_connection);
}

void HyperConnections::leave_mlp(float* hidden) {
  expand(buffers_.streams, hidden);
  if (context_.layer_index + 1 < config_.num_hidden_layers) return;
  for (int64_t i = 1; i < config_.streams; ++i)
    backend_.add({.x = hidden + i * stream_size(), .count = stream_size(), .out = hidden});
  backend_.scale({.x = view(hidden, config_.hidden_size),
                  .factor = 1.0f / static_cast<float>(config_.streams)});
}

float* HyperConnections::cleared_output(const Buffer& planes) {
  const size_t bytes = static_cast<size_t>(stream_size()) * sizeof(float);
  std::byte* output = planes.data() + static_cast<size_t>(config_.streams) * bytes;
  backend_.fill_zero(output, bytes);
  return reinterpret_cast<float*>(output);
}

void HyperConnections::collapse(const Buffer& planes, const PackedConnection& connection) {
  const int64_t width = config_.hidden_size, all = config_.streams * width;
  const float* streams = planes.as<float>();
  // A token's streams side by side.
  float* rows_of_all = buffers_.stream_input.as<float>();
  for (int64_t i = 0; i < config_.streams; ++i)
    copy(streams + i * stream_size(), view(rows_of_all + i * width, width, all));
  backend_.norm({.x = rows_of_all,
                 .weight = connection.norm.get(),
                 .epsilon = config_.norm_eps,
                 .rows = rows(),
                 .width = all,
                 .out = buffers_.stream_inputs.data()});
  project(buffers_.stream_inputs, connection.linear, buffers_.stream_coefficients);
  backend_.connect_streams({.x = buffers_.stream_coefficients.as<float>(),
                            .scale = connection.scale.get(),
                            .base = connection.base.get(),
                            .rows = rows(),
                            .streams = config_.streams,
                            .iterations = config_.connections.iterations,
                            .epsilon = config_.connections.epsilon,
                            .collapse = collapse_weights(),
                            .expand = expand_weights()});
  backend_.mix_streams({.added = streams,
                        .coefficients = collapse_weights(),
                        .streams = 1,
                        .inputs = config_.streams,
                        .rows = rows(),
                        .width = width,
                        .out = buffers_.active.as<float>()});
}

void HyperConnections::expand(const Buffer& planes, float* out) {
  backend_.mix_streams({.added = planes.as<float>(),
                        .coefficients = expand_weights(),
                        .streams = config_.streams,
                        .inputs = config_.streams + 1,
                        .rows = rows(),
                        .width = config_.hidden_size,
                        .out = out});
}

}  // namespace kvcal
