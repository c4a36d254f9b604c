#include "forward/layer_context.h"

#include "core/error.h"

namespace kvcal {

void LayerPart::observe(LinearInput input) {
  if (!context_.observer) return;
  input.layer = context_.layer_index;
  if (input.segments.empty()) input.segments = context_.segments;
  context_.observer(input);
}

void LayerPart::observe(Role role, const Buffer& x, int64_t width, int64_t index) {
  observe(
      {.role = role, .index = index, .x = x.data(), .type = type_, .rows = rows(), .width = width});
}

void LayerPart::fold(AmaxSlot slot, const void* x, int64_t count, ComputeType type) {
  if (slot)
    backend_.observe_amax(
        {.x = x, .type = type, .count = count, .amax = slot.amax, .nonfinite = slot.nonfinite});
}

void LayerPart::convert(ComputeType type, const float* x, int64_t width, void* out, AmaxSlot seen) {
  backend_.load_kv({.x = x,
                    .dtype = KvDType::kFloat32,
                    .rows = rows(),
                    .heads = 1,
                    .head_dim = width,
                    .out_type = type,
                    .out = out});
  fold(seen, out, rows() * width, type);
}

void LayerPart::convert_input(Role role, const float* x, int64_t width, const Buffer& out,
                              int64_t index) {
  convert(type_, x, width, out.data(), slot_of(role, index));
  observe(role, out, width, index);
}

void LayerPart::normalize(const float* x, const PackedNorm& norm, ComputeType type, void* out,
                          AmaxSlot seen) {
  if (!norm.exists())  // families that norm outputs only
    return convert(type, x, config_.hidden_size, out, seen);
  backend_.norm({.x = x,
                 .weight = norm.weight.get(),
                 .bias = norm.bias.get(),
                 .centered = config_.centers_norm,
                 .epsilon = config_.norm_eps,
                 .rows = rows(),
                 .width = config_.hidden_size,
                 .out_type = type,
                 .out = out,
                 .seen = seen});
}

void LayerPart::normalize_input(Role role, const float* x, const PackedNorm& norm) {
  normalize(x, norm, type_, buffers_.normed.data(), slot_of(role));
  observe(role, buffers_.normed, config_.hidden_size);
}

void LayerPart::gate(RowsView x, RowsView gate, GateFunction function, int64_t width,
                     ComputeType out_type, void* out, AmaxSlot seen) {
  backend_.multiply_gate({.x = x,
                          .gate = gate,
                          .function = function,
                          .rows = rows(),
                          .width = width,
                          .out_type = out_type,
                          .out = out,
                          .seen = seen});
}

void LayerPart::project(const void* x, const PackedLinear& linear, int64_t rows, float* out) {
  multiply(backend_, {.x = x,
                      .linear = linear,
                      .rows = rows,
                      .out = out,
                      .is_decoding = context_.is_decoding,
                      .scratch = &context_.scratch});
  if (!linear.factors.exists()) return;
  const int64_t width = linear.matrix->out_features;
  backend_.multiply_gate({.x = {.data = out, .row_stride = width},
                          .gate = {.data = linear.factors.get(), .row_stride = 0},
                          .function = GateFunction::kIdentity,
                          .rows = rows,
                          .width = width,
                          .out = out});
}

void LayerPart::add_projected(const Buffer& x, const PackedLinear& linear, const Branch& branch,
                              float* hidden) {
  if (!branch.adds_directly()) {
    project(x, linear, buffers_.projected);
    return add_output(buffers_.projected, branch, hidden);
  }
  multiply(backend_, {.x = x.data(),
                      .linear = linear,
                      .accumulate = true,
                      .rows = rows(),
                      .out = hidden,
                      .is_decoding = context_.is_decoding,
                      .scratch = &context_.scratch});
}

ResidualNormArgs LayerPart::output_args(const Buffer& x, const Branch& branch,
                                        float* hidden) const {
  KVCAL_CHECK(!branch.norm.bias.exists());  // no family's output norm has one
  return {.x = x.as<float>(),
          .output_weight = branch.norm.weight.get(),
          .multiplier = branch.multiplier,
          .hidden = hidden,
          .centered = config_.centers_norm,
          .epsilon = config_.norm_eps,
          .rows = rows(),
          .width = config_.hidden_size,
          .scratch = buffers_.output_normed.as<float>()};
}

}  // namespace kvcal
