// MLP and experts of LayerRunner.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "family/architecture.h"
#include "forward/layer_runner.h"
#include "forward/linear_product.h"

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

RouterRule router_rule(const ModelConfig& config, const PackedExperts& packed) {
  const MoeConfig& moe = config.moe;
  return {.experts = moe.num_experts,
          .per_token = moe.experts_per_token,
          .score = moe.score,
          .group_score = moe.group_score,
          .groups = moe.group_score == GroupScore::kNone ? 1 : moe.num_groups,
          .groups_per_token = moe.groups_per_token,
          .softcap = moe.logits_softcap,
          .jitter = config.router_jitter,
          .normalizes = config.norm_topk_prob,
          .factor = config.routed_scaling_factor,
          .shared_multiplier = moe.shared_multiplier,
          .shared_is_gated = packed.shared_is_gated};
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
  score_experts(layer, hidden, rows);
  if (mlp_branch(layer).adds_directly()) {
    mix_experts(layer, rows, hidden);
    return;
  }
  backend_.fill_zero(buffers_.projected.data(),
                     static_cast<size_t>(rows * config_.hidden_size) * sizeof(float));
  mix_experts(layer, rows, buffers_.projected.as<float>());
  add_output(mlp_branch(layer), rows, hidden);
}

void LayerRunner::add_both(const PackedLayer& layer, float* hidden, int64_t rows) {
  const size_t bytes = static_cast<size_t>(rows * config_.hidden_size) * sizeof(float);
  backend_.fill_zero(buffers_.beside.data(), bytes);
  activate({.mlp = layer.mlp, .x = buffers_.normed.data(), .rows = rows});
  project(buffers_.activated, layer.mlp.down, rows, buffers_.projected);
  add_normed(buffers_.projected, branch(layer.moe.mlp_output_norm), rows,
             buffers_.beside.as<float>());
  score_experts(layer, hidden, rows);
  normalize(hidden, layer.moe.input_norm, rows, type_, buffers_.normed.data(), {});
  backend_.fill_zero(buffers_.projected.data(), bytes);
  mix_experts(layer, rows, buffers_.projected.as<float>());
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

void LayerRunner::score_experts(const PackedLayer& layer, const float* hidden, int64_t rows) {
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
}

std::vector<int32_t> LayerRunner::route(const PackedExperts& experts, int64_t rows) {
  const int64_t stride = experts.router.matrix->out_features;
  const RouteArgs args{.rule = router_rule(config_, experts),
                       .logits = buffers_.router_logits.as<float>(),
                       .correction = experts.correction.get(),
                       .expert_scales = experts.expert_scales.get(),
                       .rows = rows,
                       .row_stride = stride,
                       .scratch = buffers_.router_scratch.as<float>(),
                       .chosen = buffers_.chosen.as<int32_t>(),
                       .chosen_weights = buffers_.chosen_weights.as<float>(),
                       .tokens = buffers_.expert_tokens.as<int32_t>(),
                       .weights = buffers_.expert_weights.as<float>(),
                       .counts = expert_counts_.as<int32_t>(),
                       .shared_tokens = buffers_.all_tokens.as<int32_t>(),
                       .shared_weights = buffers_.shared_weights.as<float>()};
  backend_.route(args);
  std::vector<int32_t> counts(static_cast<size_t>(args.rule.experts + 1));
  backend_.copy_out(expert_counts_.data(), std::as_writable_bytes(std::span(counts)));
  if (const int32_t unusable = counts.back(); unusable != 0) {
    const int64_t token = rows - unusable;
    std::vector<float> logits(static_cast<size_t>(args.rule.experts));
    backend_.copy_out(reinterpret_cast<const std::byte*>(args.logits + token * stride),
                      std::as_writable_bytes(std::span(logits)));
    const auto is_bad = [](float logit) { return !std::isfinite(logit); };
    fail("the router gives ", *std::ranges::find_if(logits, is_bad), " for token ", token,
         " of a batch");
  }
  counts.pop_back();
  return counts;
}

void LayerRunner::mix_experts(const PackedLayer& layer, int64_t rows, float* out) {
  // The one wait of a batch in a layer: how many rows each expert multiplies.
  const std::vector<int32_t> counts = route(layer.moe, rows);
  const bool shows_all = shows_all_experts_ && (observer_ || slot_of_);
  if (shows_all) show_experts(layer, rows);
  std::vector<int32_t> tokens;  // of experts whose inputs are observed by sample
  if (observer_ && !shows_all) {
    tokens.resize(static_cast<size_t>(rows * config_.moe.experts_per_token));
    backend_.copy_out(buffers_.expert_tokens.data(), std::as_writable_bytes(std::span(tokens)));
  }
  int64_t begin = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t count = counts[i];
    if (count == 0) continue;
    ExpertShare share{.mlp = layer.moe.experts[i],
                      .rows = buffers_.expert_tokens.as<int32_t>() + begin,
                      .weights = buffers_.expert_weights.as<float>() + begin,
                      .count = count,
                      .index = static_cast<int64_t>(i),
                      .is_observed = !shows_all,
                      .weighs_inputs = config_.architecture->weighs_expert_inputs};
    if (!tokens.empty())
      share.segments = segments_of(
          std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
    add_expert(share, out);
    begin += count;
  }
  if (layer.moe.shared.width > 0)
    add_expert({.mlp = layer.moe.shared,
                .rows = buffers_.all_tokens.as<int32_t>(),
                .weights = buffers_.shared_weights.as<float>(),
                .count = rows,
                .role = Role::kSharedUp},
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

void LayerRunner::gather_weighed(const ExpertShare& share) {
  const int64_t width = config_.hidden_size;
  // Weights multiply float32 rows, which are rounded once, after that.
  const bool is_float = type_ == ComputeType::kFloat32;
  backend_.gather_rows({.x = (is_float ? buffers_.normed : buffers_.router_input).data(),
                        .rows = share.rows,
                        .count = share.count,
                        .width = width,
                        .out = buffers_.projected.data()});
  backend_.fill_zero(buffers_.expert_out.data(),
                     static_cast<size_t>(share.count * width) * sizeof(float));
  backend_.scatter_add({.x = buffers_.projected.as<float>(),
                        .rows = buffers_.all_tokens.as<int32_t>(),
                        .weights = share.weights,
                        .count = share.count,
                        .width = width,
                        .out = buffers_.expert_out.as<float>()});
  convert(type_, buffers_.expert_out.as<float>(), share.count, width, buffers_.gathered.data(), {});
}

void LayerRunner::add_expert(const ExpertShare& share, float* out) {
  if (share.weighs_inputs) {
    gather_weighed(share);
  } else {
    backend_.gather_rows({.x = buffers_.normed.data(),
                          .type = type_,
                          .rows = share.rows,
                          .count = share.count,
                          .width = config_.hidden_size,
                          .out = buffers_.gathered.data()});
  }
  if (share.is_observed)
    fold(slot_of(share.role, share.index), buffers_.gathered.data(),
         share.count * config_.hidden_size, type_);
  activate({.mlp = share.mlp,
            .x = buffers_.gathered.data(),
            .rows = share.count,
            .role = share.role,
            .index = share.index,
            .segments = share.segments,
            .is_observed = share.is_observed});
  project(buffers_.activated, share.mlp.down, share.count, buffers_.expert_out);
  backend_.scatter_add({.x = buffers_.expert_out.as<float>(),
                        .rows = share.rows,
                        .weights = share.weighs_inputs ? nullptr : share.weights,
                        .count = share.count,
                        .width = config_.hidden_size,
                        .out = out});
}

}  // namespace kvcal
