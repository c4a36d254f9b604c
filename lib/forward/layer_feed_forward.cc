// MLP and experts of LayerRunner.
#include <cmath>
#include <numeric>

#include "backend/upload.h"
#include "family/architecture.h"
#include "forward/layer_runner.h"
#include "forward/linear_product.h"
#include "forward/routing.h"

namespace kvcal {
namespace {

/// Role of an MLP's second input.
Role down_of(Role up) {
  switch (up) {
    case Role::kExpertUp:
      return Role::kExpertDown;
    case Role::kSharedUp:
      return Role::kSharedDown;
    default:
      return Role::kDown;
  }
}

}  // namespace

void LayerRunner::feed_forward(const PackedLayer& layer, float* hidden, int64_t rows,
                               bool is_normed) {
  if (!has_feed_forward(layer)) return;
  if (!config_.has_mlp_norm) {
    fold(mlp_input_slot(layer), buffers_.normed.data(), rows * config_.hidden_size, type_);
  } else if (!is_normed) {
    normalize(hidden, layer.mlp_norm, rows, type_, buffers_.normed.data(), mlp_input_slot(layer));
  }
  if (layer.moe.output_norm.exists()) return add_both(layer, hidden, rows);
  if (layer.moe.experts.empty()) {
    activate({.mlp = layer.mlp, .x = buffers_.normed.data(), .rows = rows});
    add_projected(buffers_.activated.data(), layer.mlp.down, mlp_branch(layer), rows, hidden);
    return;
  }
  const std::vector<float> logits = route_logits(layer, hidden, rows);
  if (mlp_branch(layer).adds_directly()) {
    mix_experts(layer, logits, rows, hidden);
    return;
  }
  backend_.fill_zero(buffers_.projected.data(),
                     static_cast<size_t>(rows * config_.hidden_size) * sizeof(float));
  mix_experts(layer, logits, rows, buffers_.projected.as<float>());
  add_output(mlp_branch(layer), rows, hidden);
}

void LayerRunner::add_both(const PackedLayer& layer, float* hidden, int64_t rows) {
  const size_t bytes = static_cast<size_t>(rows * config_.hidden_size) * sizeof(float);
  backend_.fill_zero(buffers_.beside.data(), bytes);
  activate({.mlp = layer.mlp, .x = buffers_.normed.data(), .rows = rows});
  project(buffers_.activated, layer.mlp.down, rows, buffers_.projected);
  add_normed(buffers_.projected, branch(layer.moe.mlp_output_norm), rows,
             buffers_.beside.as<float>());
  const std::vector<float> logits = route_logits(layer, hidden, rows);
  normalize(hidden, layer.moe.input_norm, rows, type_, buffers_.normed.data(), {});
  backend_.fill_zero(buffers_.projected.data(), bytes);
  mix_experts(layer, logits, rows, buffers_.projected.as<float>());
  add_normed(buffers_.projected, branch(layer.moe.output_norm), rows, buffers_.beside.as<float>());
  add_normed(buffers_.beside, mlp_branch(layer), rows, hidden);
}

AmaxSlot LayerRunner::mlp_input_slot(const PackedLayer& layer) const {
  if (layer.moe.experts.empty() || layer.mlp.width > 0) return slot_of(Role::kUp);
  return type_ == ComputeType::kFloat32 ? slot_of(Role::kRouter) : AmaxSlot{};
}

void LayerRunner::activate(const MlpInput& input) {
  const Role down = down_of(input.role);
  LinearInput seen{.role = input.role,
                   .index = input.index,
                   .x = input.x,
                   .type = type_,
                   .rows = input.rows,
                   .width = config_.hidden_size,
                   .segments = input.segments};
  if (input.is_observed) observe(seen);
  multiply_activated(backend_, {.x = input.x,
                                .mlp = input.mlp,
                                .rows = input.rows,
                                .scratch = buffers_.inner.as<float>(),
                                .out_type = type_,
                                .out = buffers_.activated.data(),
                                .seen = input.is_observed ? slot_of(down, input.index) : AmaxSlot{},
                                .is_decoding = is_decoding_,
                                .product_scratch = &product_scratch_});
  seen.role = down;
  seen.x = buffers_.activated.data();
  seen.width = input.mlp.width;
  if (input.is_observed) observe(seen);
}

std::vector<float> LayerRunner::route_logits(const PackedLayer& layer, const float* hidden,
                                             int64_t rows) {
  // Choices are discrete, so the router computes in float32 for every compute type.
  const void* input = buffers_.normed.data();
  const PackedNorm& own = layer.moe.router_norm;
  if (type_ != ComputeType::kFloat32 || own.exists()) {
    const PackedNorm& shared = config_.has_mlp_norm ? layer.mlp_norm : layer.input_norm;
    normalize(hidden, own.exists() ? own : shared, rows, ComputeType::kFloat32,
              buffers_.router_input.data(), slot_of(Role::kRouter));
    input = buffers_.router_input.data();
  }
  observe({.role = Role::kRouter, .x = input, .rows = rows, .width = config_.hidden_size});
  project(input, layer.moe.router, rows, buffers_.router_logits);
  std::vector<float> logits(static_cast<size_t>(rows * layer.moe.router.matrix->out_features));
  backend_.copy_out(buffers_.router_logits.data(), std::as_writable_bytes(std::span(logits)));
  return logits;
}

void LayerRunner::mix_experts(const PackedLayer& layer, std::span<const float> logits, int64_t rows,
                              float* out) {
  const int64_t stride = layer.moe.router.matrix->out_features;
  const Routing routing =
      route(config_, logits, stride, layer.moe.correction, layer.moe.expert_scales);
  const bool shows_all = shows_all_experts_ && (observer_ || slot_of_);
  if (shows_all) show_experts(layer, rows);
  for (size_t i = 0; i < routing.experts.size(); ++i)
    if (const Routing::Share& share = routing.experts[i]; !share.tokens.empty())
      add_expert({.mlp = layer.moe.experts[i],
                  .tokens = share.tokens,
                  .weights = share.weights,
                  .index = static_cast<int64_t>(i),
                  .is_observed = !shows_all,
                  .weighs_inputs = config_.architecture->weighs_expert_inputs},
                 out);
  if (layer.moe.shared.width == 0) return;
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> weights(all.size(), config_.moe.shared_multiplier);
  if (layer.moe.shared_is_gated)
    for (size_t row = 0; row < weights.size(); ++row)
      weights[row] /= 1.0f + std::exp(-logits[(row + 1) * static_cast<size_t>(stride) - 1]);
  add_expert({.mlp = layer.moe.shared, .tokens = all, .weights = weights, .role = Role::kSharedUp},
             out);
}

void LayerRunner::show_experts(const PackedLayer& layer, int64_t rows) {
  for (size_t i = 0; i < layer.moe.experts.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    fold(slot_of(Role::kExpertUp, index), buffers_.normed.data(), rows * config_.hidden_size,
         type_);
    activate({.mlp = layer.moe.experts[i],
              .x = buffers_.normed.data(),
              .rows = rows,
              .role = Role::kExpertUp,
              .index = index});
  }
}

std::vector<Segment> LayerRunner::segments_of(std::span<const int32_t> tokens) const {
  std::vector<Segment> result;
  int64_t begin = 0;
  for (const Segment& segment : segments_) {
    int64_t end = begin;
    while (end < std::ssize(tokens) &&
           tokens[static_cast<size_t>(end)] < segment.q_begin + segment.q_count)
      ++end;
    result.push_back({.q_begin = begin, .q_count = end - begin});
    begin = end;
  }
  return result;
}

void LayerRunner::gather_weighed(const ExpertShare& share, const Buffer& rows) {
  const auto count = static_cast<int64_t>(share.tokens.size());
  const int64_t width = config_.hidden_size;
  std::vector<int32_t> places(share.tokens.size());
  std::iota(places.begin(), places.end(), 0);
  const Buffer own = upload<int32_t>(places, backend_);
  const Buffer weights = upload<float>(share.weights, backend_);
  // Weights multiply float32 rows, which are rounded once, after that.
  const bool is_float = type_ == ComputeType::kFloat32;
  backend_.gather_rows({.x = (is_float ? buffers_.normed : buffers_.router_input).data(),
                        .rows = rows.as<int32_t>(),
                        .count = count,
                        .width = width,
                        .out = buffers_.projected.data()});
  backend_.fill_zero(buffers_.expert_out.data(),
                     static_cast<size_t>(count * width) * sizeof(float));
  backend_.scatter_add({.x = buffers_.projected.as<float>(),
                        .rows = own.as<int32_t>(),
                        .weights = weights.as<float>(),
                        .count = count,
                        .width = width,
                        .out = buffers_.expert_out.as<float>()});
  convert(type_, buffers_.expert_out.as<float>(), count, width, buffers_.gathered.data(), {});
}

void LayerRunner::add_expert(const ExpertShare& share, float* out) {
  const auto count = static_cast<int64_t>(share.tokens.size());
  const Buffer rows = upload<int32_t>(share.tokens, backend_);
  const std::vector<float> ones(share.weights.size(), 1.0f);
  const Buffer weights = upload<float>(share.weighs_inputs ? ones : share.weights, backend_);
  if (share.weighs_inputs) {
    gather_weighed(share, rows);
  } else {
    backend_.gather_rows({.x = buffers_.normed.data(),
                          .type = type_,
                          .rows = rows.as<int32_t>(),
                          .count = count,
                          .width = config_.hidden_size,
                          .out = buffers_.gathered.data()});
  }
  if (share.is_observed)
    fold(slot_of(share.role, share.index), buffers_.gathered.data(), count * config_.hidden_size,
         type_);
  activate({.mlp = share.mlp,
            .x = buffers_.gathered.data(),
            .rows = count,
            .role = share.role,
            .index = share.index,
            .segments =
                share.is_observed && observer_ ? segments_of(share.tokens) : std::vector<Segment>{},
            .is_observed = share.is_observed});
  project(buffers_.activated, share.mlp.down, count, buffers_.expert_out);
  backend_.scatter_add({.x = buffers_.expert_out.as<float>(),
                        .rows = rows.as<int32_t>(),
                        .weights = weights.as<float>(),
                        .count = count,
                        .width = config_.hidden_size,
                        .out = out});
}

}  // namespace kvcal
