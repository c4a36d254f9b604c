// Parallel residual streams of LayerRunner, and the residual beside attention. Source: transformers
// 5.23, models/gemma3n.
#include <numbers>

#include "forward/layer_runner.h"

namespace kvcal {
namespace {

/// Least mean square to which a stream's magnitude is matched.
constexpr float kLeastMeanSquare = 1e-5f;

}  // namespace

void LayerRunner::project_streams(const PackedStreams& packed, const float* embedded,
                                  int64_t rows) {
  const int64_t width = config_.hidden_size;
  const HeadsView from{const_cast<float*>(embedded), rows, 1, width, width};
  const HeadsView first{buffers_.streams.as<float>(), rows, 1, width, width};
  backend_.copy_heads({.x = from, .out = first, .width = width});
  float* next = buffers_.streams.as<float>();
  for (size_t i = 0; i < packed.projections.size(); ++i) {
    next += rows * width;
    const auto index = static_cast<int64_t>(i);
    convert(type_, embedded, rows, width, buffers_.normed.data(),
            slot_of(Role::kStreamProjection, index));
    observe({.role = Role::kStreamProjection,
             .index = index,
             .x = buffers_.normed.data(),
             .type = type_,
             .rows = rows,
             .width = width});
    project(buffers_.normed.data(), packed.projections[i], rows, next);
    backend_.match_magnitude(
        {.target = embedded, .x = next, .floor = kLeastMeanSquare, .rows = rows, .width = width});
  }
}

void LayerRunner::route_streams(const PackedStreams& packed, const float* x,
                                const PackedLinear& linear, Role role, int64_t rows) {
  const int64_t width = config_.hidden_size;
  normalize(x, packed.router_norm, rows, ComputeType::kFloat32, buffers_.stream_input.data(),
            slot_of(Role::kStreamRouter));
  // The router reads two inputs a layer; side by side they are one.
  const bool is_second = role == Role::kStreamCorrection;
  if (observer_) {
    float* place = buffers_.stream_inputs.as<float>() + (is_second ? width : 0);
    backend_.copy_heads({.x = {buffers_.stream_input.as<float>(), rows, 1, width, width},
                         .out = {place, rows, 1, width, 2 * width},
                         .width = width});
    if (is_second)
      observe({.role = Role::kStreamRouter,
               .x = buffers_.stream_inputs.data(),
               .rows = rows,
               .width = 2 * width});
  }
  project(buffers_.stream_input, packed.router, rows, buffers_.stream_coefficients);
  backend_.activate({.x = buffers_.stream_coefficients.as<float>(),
                     .gated = false,
                     .activation = {.kind = Activation::kTanh},
                     .rows = rows,
                     .width = config_.streams,
                     .out = buffers_.stream_routes.data(),
                     .seen = slot_of(role)});
  observe(
      {.role = role, .x = buffers_.stream_routes.data(), .rows = rows, .width = config_.streams});
  project(buffers_.stream_routes, linear, rows, buffers_.stream_coefficients);
}

const float* LayerRunner::predict_streams(const PackedLayer& layer, const float* hidden,
                                          int64_t rows) {
  const PackedStreams& packed = layer.streams;
  const float* streams = hidden;
  if (!packed.projections.empty()) {
    project_streams(packed, hidden, rows);
    streams = buffers_.streams.as<float>();
  }
  const int64_t active = config_.active_stream * rows * config_.hidden_size;
  route_streams(packed, streams + active, packed.prediction, Role::kStreamPrediction, rows);
  backend_.mix_streams({.x = streams,
                        .added = streams,
                        .coefficients = buffers_.stream_coefficients.as<float>(),
                        .streams = config_.streams,
                        .inputs = config_.streams,
                        .rows = rows,
                        .width = config_.hidden_size,
                        .out = buffers_.predicted.as<float>()});
  return buffers_.predicted.as<float>() + active;
}

float* LayerRunner::begin_stream(int64_t rows) {
  const int64_t width = config_.hidden_size;
  float* predicted = buffers_.predicted.as<float>() + config_.active_stream * rows * width;
  backend_.copy_heads({.x = {predicted, rows, 1, width, width},
                       .out = {buffers_.active.as<float>(), rows, 1, width, width},
                       .width = width});
  return buffers_.active.as<float>();
}

void LayerRunner::correct_streams(const PackedLayer& layer, float* hidden, int64_t rows) {
  const int64_t width = config_.hidden_size, size = rows * width;
  const PackedStreams& packed = layer.streams;
  float* active = buffers_.active.as<float>();
  route_streams(packed, active, packed.correction, Role::kStreamCorrection, rows);
  backend_.add({.x = buffers_.predicted.as<float>() + config_.active_stream * size,
                .multiplier = -1.0f,
                .count = size,
                .out = active});
  backend_.mix_streams({.x = buffers_.predicted.as<float>(),
                        .added = active,
                        .coefficients = buffers_.stream_coefficients.as<float>(),
                        .streams = config_.streams,
                        .inputs = 1,
                        .rows = rows,
                        .width = width,
                        .out = hidden});
}

void LayerRunner::join_streams(const PackedStreams& packed, float* hidden, int64_t rows) {
  const int64_t width = config_.hidden_size, size = rows * width;
  for (size_t i = 0; i < packed.outputs.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    float* stream = hidden + (index + 1) * size;
    convert(type_, stream, rows, width, buffers_.normed.data(),
            slot_of(Role::kStreamOutput, index));
    observe({.role = Role::kStreamOutput,
             .index = index,
             .x = buffers_.normed.data(),
             .type = type_,
             .rows = rows,
             .width = width});
    project(buffers_.normed.data(), packed.outputs[i], rows, stream);
    backend_.match_magnitude(
        {.target = hidden, .x = stream, .floor = kLeastMeanSquare, .rows = rows, .width = width});
  }
  for (int64_t i = 1; i < config_.streams; ++i)
    backend_.add({.x = hidden + i * size, .count = size, .out = hidden});
  backend_.scale(
      {.x = {hidden, rows, 1, width, width}, .factor = 1.0f / static_cast<float>(config_.streams)});
}

void LayerRunner::make_laurel(const PackedLayer& layer, const float* x, int64_t rows) {
  const int64_t rank = config_.laurel_rank;
  project(buffers_.normed, layer.laurel.down, rows, buffers_.laurel_low);
  convert(type_, buffers_.laurel_low.as<float>(), rows, rank, buffers_.laurel_input.data(),
          slot_of(Role::kLaurelUp));
  observe(Role::kLaurelUp, buffers_.laurel_input, rows, rank);
  project(buffers_.laurel_input, layer.laurel.up, rows, buffers_.projected);
  normalize(x, layer.input_norm, rows, ComputeType::kFloat32, buffers_.laurel.data(), {});
  add_output(branch(layer.laurel.norm), rows, buffers_.laurel.as<float>());
}

void LayerRunner::add_laurel(float* hidden, int64_t rows) {
  const int64_t width = config_.hidden_size;
  backend_.add({.x = buffers_.laurel.as<float>(), .count = rows * width, .out = hidden});
  backend_.scale(
      {.x = {hidden, rows, 1, width, width}, .factor = 1.0f / std::numbers::sqrt2_v<float>});
}

}  // namespace kvcal
