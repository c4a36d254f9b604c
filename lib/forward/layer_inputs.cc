// Layers' own inputs of LayerRunner. Source: transformers 5.23, models/gemma4 and models/gemma3n.
#include "forward/layer_runner.h"

namespace kvcal {

void LayerRunner::add_layer_input(const PackedLayer& layer, int64_t layer_index, float* hidden,
                                  int64_t rows) {
  KVCAL_CHECK(inputs_.embedded && inputs_.rows);
  const int64_t size = config_.layer_input_size, width = config_.hidden_size;
  // All layers project the same embeddings; the first observes them.
  const bool is_first = layer_index == 0;
  convert(type_, inputs_.embedded, rows, width, buffers_.normed.data(),
          is_first ? slot_of(Role::kLayerInputProjection) : AmaxSlot{});
  if (is_first) observe(Role::kLayerInputProjection, buffers_.normed, rows, width);
  project(buffers_.normed, layer.input.projection, rows, buffers_.layer_projected);
  // transformers divides the projection by sqrt(hidden_size), which only epsilon notices.
  backend_.norm({.x = buffers_.layer_projected.as<float>(),
                 .weight = layer.input.norm.weight.get(),
                 .epsilon = config_.norm_eps * static_cast<float>(width),
                 .rows = rows,
                 .width = size,
                 .out = buffers_.layer_input.data()});
  backend_.add({.x = inputs_.rows, .count = rows * size, .out = buffers_.layer_input.as<float>()});

  gate_input(layer, hidden, rows);
  observe(Role::kLayerInputGate, buffers_.normed, rows, width);
  project(buffers_.normed, layer.input.gate, rows, buffers_.layer_projected);
  const auto view = [&](const Buffer& buffer, int64_t first, int64_t stride) {
    return HeadsView{buffer.as<float>() + first, rows, 1, size, stride};
  };
  backend_.copy_heads({.x = view(buffers_.layer_projected, 0, size),
                       .out = view(buffers_.layer_gated, 0, 2 * size),
                       .width = size});
  backend_.copy_heads({.x = view(buffers_.layer_input, 0, size),
                       .out = view(buffers_.layer_gated, size, 2 * size),
                       .width = size});
  backend_.activate({.x = buffers_.layer_gated.as<float>(),
                     .activation = {.kind = config_.activation},
                     .rows = rows,
                     .width = size,
                     .out_type = type_,
                     .out = buffers_.layer_activated.data(),
                     .seen = slot_of(Role::kLayerInputOutput)});
  observe(Role::kLayerInputOutput, buffers_.layer_activated, rows, size);
  const Branch way = branch(layer.input.output_norm);
  if (config_.streams == 1)
    return add_projected(buffers_.layer_activated.data(), layer.input.output, way, rows, hidden);
  // Every stream but the first gets it, whichever is active.
  project(buffers_.layer_activated, layer.input.output, rows, buffers_.projected);
  for (int64_t i = 1; i < config_.streams; ++i) add_output(way, rows, hidden + i * rows * width);
}

void LayerRunner::gate_input(const PackedLayer& layer, const float* hidden, int64_t rows) {
  const int64_t width = config_.hidden_size;
  const float* active = hidden + config_.active_stream * rows * width;
  const AmaxSlot seen = slot_of(Role::kLayerInputGate);
  if (!layer.streams.scale.exists())
    return convert(type_, active, rows, width, buffers_.normed.data(), seen);
  backend_.multiply_gate({.x = {.data = active, .row_stride = width},
                          .gate = {.data = layer.streams.scale.get(), .row_stride = 0},
                          .function = GateFunction::kIdentity,
                          .rows = rows,
                          .width = width,
                          .out_type = type_,
                          .out = buffers_.normed.data(),
                          .seen = seen});
}

}  // namespace kvcal
