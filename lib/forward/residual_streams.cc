#include "forward/residual_streams.h"

#include <numbers>

#include "core/error.h"

namespace kvcal {
namespace {

/// Least mean square to which a stream's magnitude is matched.
constexpr float kLeastMeanSquare = 1e-5f;

}  // namespace

void ResidualStreams::project_stream(Role role, int64_t index, const PackedLinear& linear,
                                     const float* x, const float* target, float* out) {
  const int64_t width = config_.hidden_size;
  convert_input(role, x, width, buffers_.normed, index);
  project(buffers_.normed.data(), linear, rows(), out);
  backend_.match_magnitude(
      {.target = target, .x = out, .floor = kLeastMeanSquare, .rows = rows(), .width = width});
}

void ResidualStreams::project_streams(const float* embedded) {
  const int64_t width = config_.hidden_size;
  float* stream = buffers_.streams.as<float>();
  copy(embedded, view(stream, width));
  int64_t index = 0;
  for (const PackedLinear& projection : layer().streams.projections)
    project_stream(Role::kStreamProjection, index++, projection, embedded, embedded,
                   stream += stream_size());
}

void ResidualStreams::route(const float* x, const PackedLinear& linear, Role role) {
  const int64_t width = config_.hidden_size;
  normalize(x, layer().streams.router_norm, ComputeType::kFloat32, buffers_.stream_input.data(),
            slot_of(Role::kStreamRouter));
  // The router reads two inputs a layer; side by side they are one.
  const bool is_second = role == Role::kStreamCorrection;
  if (context_.observer) {
    float* place = buffers_.stream_inputs.as<float>() + (is_second ? width : 0);
    copy(buffers_.stream_input.as<float>(), view(place, width, 2 * width));
    if (is_second)
      observe({.role = Role::kStreamRouter,
               .x = buffers_.stream_inputs.data(),
               .rows = rows(),
               .width = 2 * width});
  }
  project(buffers_.stream_input, layer().streams.router, buffers_.stream_coefficients);
  backend_.activate({.x = buffers_.stream_coefficients.as<float>(),
                     .gated = false,
                     .activation = {.kind = Activation::kTanh},
                     .rows = rows(),
                     .width = config_.streams,
                     .out = buffers_.stream_routes.data(),
                     .seen = slot_of(role)});
  observe(
      {.role = role, .x = buffers_.stream_routes.data(), .rows = rows(), .width = config_.streams});
  project(buffers_.stream_routes, linear, buffers_.stream_coefficients);
}

const float* ResidualStreams::predict(const float* hidden) {
  const PackedStreams& packed = layer().streams;
  const float* streams = hidden;
  if (!packed.projections.empty()) {
    project_streams(hidden);
    streams = buffers_.streams.as<float>();
  }
  const int64_t active = config_.active_stream * stream_size();
  route(streams + active, packed.prediction, Role::kStreamPrediction);
  backend_.mix_streams({.x = streams,
                        .added = streams,
                        .coefficients = buffers_.stream_coefficients.as<float>(),
                        .streams = config_.streams,
                        .inputs = config_.streams,
                        .rows = rows(),
                        .width = config_.hidden_size,
                        .out = buffers_.predicted.as<float>()});
  return buffers_.predicted.as<float>() + active;
}

float* ResidualStreams::begin() {
  float* active = buffers_.active.as<float>();
  copy(buffers_.predicted.as<float>() + config_.active_stream * stream_size(),
       view(active, config_.hidden_size));
  return active;
}

void ResidualStreams::correct(float* hidden) {
  float* active = buffers_.active.as<float>();
  const float* predicted = buffers_.predicted.as<float>();
  route(active, layer().streams.correction, Role::kStreamCorrection);
  backend_.add({.x = predicted + config_.active_stream * stream_size(),
                .multiplier = -1.0f,
                .count = stream_size(),
                .out = active});
  backend_.mix_streams({.x = predicted,
                        .added = active,
                        .coefficients = buffers_.stream_coefficients.as<float>(),
                        .streams = config_.streams,
                        .inputs = 1,
                        .rows = rows(),
                        .width = config_.hidden_size,
                        .out = hidden});
}

void ResidualStreams::join(float* hidden) {
  const int64_t size = stream_size();
  int64_t index = 0;
  float* stream = hidden;
  for (const PackedLinear& output : layer().streams.outputs) {
    stream += size;
    project_stream(Role::kStreamOutput, index++, output, stream, hidden, stream);
  }
  for (int64_t i = 1; i < config_.streams; ++i)
    backend_.add({.x = hidden + i * size, .count = size, .out = hidden});
  backend_.scale({.x = view(hidden, config_.hidden_size),
                  .factor = 1.0f / static_cast<float>(config_.streams)});
}

void ResidualStreams::make_laurel(const float* x) {
  const PackedLaurel& packed = layer().laurel;
  project(buffers_.normed, packed.down, buffers_.laurel_low);
  convert_input(Role::kLaurelUp, buffers_.laurel_low.as<float>(), config_.laurel_rank,
                buffers_.laurel_input);
  project(buffers_.laurel_input, packed.up, buffers_.projected);
  normalize(x, layer().input_norm, ComputeType::kFloat32, buffers_.laurel.data());
  add_output(buffers_.projected, branch(packed.norm), buffers_.laurel.as<float>());
}

void ResidualStreams::add_laurel(float* hidden) {
  backend_.add({.x = buffers_.laurel.as<float>(), .count = stream_size(), .out = hidden});
  backend_.scale(
      {.x = view(hidden, config_.hidden_size), .factor = 1.0f / std::numbers::sqrt2_v<float>});
}

void ResidualStreams::add_layer_input(const LayerInputs& inputs, float* hidden) {
  KVCAL_CHECK(inputs.embedded && inputs.rows);
  const PackedLayerInput& packed = layer().input;
  const int64_t size = config_.layer_input_size, width = config_.hidden_size;
  // All layers project the same embeddings; the first observes them.
  if (context_.layer_index == 0)
    convert_input(Role::kLayerInputProjection, inputs.embedded, width, buffers_.normed);
  else
    convert(type_, inputs.embedded, width, buffers_.normed.data(), {});
  project(buffers_.normed, packed.projection, buffers_.layer_projected);
  // transformers divides the projection by sqrt(hidden_size), which only epsilon notices.
  backend_.norm({.x = buffers_.layer_projected.as<float>(),
                 .weight = packed.norm.weight.get(),
                 .epsilon = config_.norm_eps * static_cast<float>(width),
                 .rows = rows(),
                 .width = size,
                 .out = buffers_.layer_input.data()});
  float* input = buffers_.layer_input.as<float>();
  backend_.add({.x = inputs.rows, .count = rows() * size, .out = input});

  make_gate_input(hidden);
  observe(Role::kLayerInputGate, buffers_.normed, width);
  project(buffers_.normed, packed.gate, buffers_.layer_projected);
  float* gated = buffers_.layer_gated.as<float>();
  copy(buffers_.layer_projected.as<float>(), view(gated, size, 2 * size));
  copy(input, view(gated + size, size, 2 * size));
  backend_.activate({.x = gated,
                     .activation = {.kind = config_.activation},
                     .rows = rows(),
                     .width = size,
                     .out_type = type_,
                     .out = buffers_.layer_activated.data(),
                     .seen = slot_of(Role::kLayerInputOutput)});
  observe(Role::kLayerInputOutput, buffers_.layer_activated, size);
  const Branch way = branch(packed.output_norm);
  if (config_.streams == 1)
    return add_projected(buffers_.layer_activated, packed.output, way, hidden);
  // Every stream but the first gets it, whichever is active.
  project(buffers_.layer_activated, packed.output, buffers_.projected);
  for (int64_t i = 1; i < config_.streams; ++i)
    add_output(buffers_.projected, way, hidden + i * stream_size());
}

void ResidualStreams::make_gate_input(const float* hidden) {
  const int64_t width = config_.hidden_size;
  const float* active = hidden + config_.active_stream * stream_size();
  const PackedValues& scale = layer().streams.scale;
  const AmaxSlot seen = slot_of(Role::kLayerInputGate);
  if (!scale.exists()) return convert(type_, active, width, buffers_.normed.data(), seen);
  gate({active, width}, {scale.get(), 0}, GateFunction::kIdentity, width, type_,
       buffers_.normed.data(), seen);
}

}  // namespace kvcal
