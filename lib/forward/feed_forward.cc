#include "forward/feed_forward.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "family/architecture.h"

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

RouterRule router_rule(const ModelConfig& config, int64_t per_token, const PackedExperts& packed) {
  const MoeConfig& moe = config.moe;
  return {.experts = moe.num_experts,
          .per_token = per_token,
          .score = moe.score,
          .group_score = moe.group_score,
          .groups = moe.group_score == GroupScore::kNone ? 1 : moe.num_groups,
          .groups_per_token = moe.groups_per_token,
          .softcap = moe.logits_softcap,
          .jitter = config.router_jitter,
          .normalizes = config.norm_topk_prob,
          .norm_order = config.topk_norm_order,
          .factor = config.routed_scaling_factor * packed.factor,
          .shared_multiplier = moe.shared_multiplier,
          .shared_is_gated = packed.shared_is_gated,
          .scored_shared = moe.scored_shared};
}

/// Whether operations on all parts do the whole product: its inputs are not quantized.
bool are_plain(std::span<const MlpPart> parts, PackedLinear PackedMlp::*linear) {
  return std::ranges::all_of(
      parts, [&](const MlpPart& part) { return (part.mlp.*linear).quantized.empty(); });
}

/// Groups of the parts' rows, for one of their Linears.
std::vector<RowGroup> groups_of(std::span<const MlpPart> parts, PackedLinear PackedMlp::*linear) {
  std::vector<RowGroup> groups;
  for (const MlpPart& part : parts)
    groups.push_back({.weight = *(part.mlp.*linear).matrix,
                      .bias = (part.mlp.*linear).bias.get(),
                      .rows = part.rows,
                      .seen = linear == &PackedMlp::in ? part.seen : AmaxSlot{}});
  return groups;
}

}  // namespace

FeedForward::FeedForward(LayerContext& context) : LayerPart(context) {
  if (config_.architecture->has_experts())
    expert_counts_ = allocate<int32_t>(backend_, config_.moe.num_experts + 1);
}

void FeedForward::run(const float* x, float* hidden, bool is_normed, const LayerStates* states) {
  if (!exists()) return;
  if (config_.norms_stream) {
    KVCAL_CHECK(x == hidden);
    normalize_stream(hidden, layer().mlp_norm);
    convert(type_, hidden, config_.hidden_size, buffers_.normed.data(), input_slot());
  } else if (!config_.has_mlp_norm) {
    fold(input_slot(), buffers_.normed.data(), rows() * config_.hidden_size, type_);
  } else if (!is_normed) {
    normalize(x, layer().mlp_norm, type_, buffers_.normed.data(), input_slot());
  }
  if (layer().moe.output_norm.exists()) return add_both(x, hidden);
  const bool adds_directly =
      mlp_branch().adds_directly() && !layer().convolutions.mlp_output.exists();
  if (layer().moe.experts.empty()) {
    activate_all(layer().mlp, buffers_.normed);
    scale_stream(hidden, config_.mlp_stream_multiplier);
    if (layer().convolutions.mlp_output.exists()) {
      project(buffers_.activated, layer().mlp.down, buffers_.projected);
      return add_fed(states, hidden);
    }
    return add_projected(buffers_.activated, layer().mlp.down, mlp_branch(), hidden);
  }
  score_experts(x);
  scale_stream(hidden, config_.mlp_stream_multiplier);
  if (adds_directly) return mix_experts(hidden);
  mix_experts(cleared(buffers_.projected, config_.hidden_size));
  add_fed(states, hidden);
}

void FeedForward::add_fed(const LayerStates* states, float* hidden) {
  const PackedValues& convolution = layer().convolutions.mlp_output;
  if (!convolution.exists()) return add_output(buffers_.projected, mlp_branch(), hidden);
  convolve(buffers_.projected, convolution, config_.hidden_size, states, &LayerStates::mlp_output,
           buffers_.short_convolved);
  add_output(buffers_.short_convolved, mlp_branch(), hidden);
}

float* FeedForward::cleared(const Buffer& rows_of_width, int64_t width) {
  backend_.fill_zero(rows_of_width.data(), static_cast<size_t>(rows() * width) * sizeof(float));
  return rows_of_width.as<float>();
}

void FeedForward::add_both(const float* x, float* hidden) {
  float* beside = cleared(buffers_.beside, config_.hidden_size);
  activate_all(layer().mlp, buffers_.normed);
  project(buffers_.activated, layer().mlp.down, buffers_.projected);
  add_output(buffers_.projected, branch(layer().moe.mlp_output_norm), beside);
  score_experts(x);
  normalize(x, layer().moe.input_norm, type_, buffers_.normed.data());
  mix_experts(cleared(buffers_.projected, config_.hidden_size));
  add_output(buffers_.projected, branch(layer().moe.output_norm), beside);
  add_output(buffers_.beside, mlp_branch(), hidden);
}

AmaxSlot FeedForward::input_slot() const {
  if (layer().moe.experts.empty() || layer().mlp.width > 0) return slot_of(Role::kUp);
  return type_ == ComputeType::kFloat32 ? slot_of(Role::kRouter) : AmaxSlot{};
}

void FeedForward::activate_all(const PackedMlp& mlp, const Buffer& x, Role role, int64_t index) {
  const MlpPart all{
      .mlp = mlp, .rows = rows(), .index = index, .seen = slot_of(down_of(role), index)};
  activate({&all, 1}, x, role);
}

template <class Body>
void FeedForward::for_each_part(std::span<const MlpPart> parts, const Buffer& x, int64_t width,
                                const Body& body) {
  int64_t row = 0;
  for (const MlpPart& part : parts) {
    body(part, row, x.data() + static_cast<size_t>(row * width) * bytes_of(type_));
    row += part.rows;
  }
}

void FeedForward::observe_parts(std::span<const MlpPart> parts, Role role, const Buffer& x,
                                int64_t width) {
  for_each_part(parts, x, width, [&](const MlpPart& part, int64_t, const std::byte* rows) {
    observe({.role = role,
             .index = part.index,
             .x = rows,
             .type = type_,
             .rows = part.rows,
             .width = width,
             .segments = part.segments});
  });
}

void FeedForward::activate(std::span<const MlpPart> parts, const Buffer& x, Role role,
                           bool is_observed) {
  const PackedMlp& mlp = parts.front().mlp;
  const int64_t width = mlp.in.matrix->in_features;
  if (is_observed) observe_parts(parts, role, x, width);
  const auto is_sparse = [](const MlpPart& part) { return part.mlp.deviations.has_value(); };
  const bool is_fused = are_plain(parts, &PackedMlp::in) && std::ranges::none_of(parts, is_sparse);
  if (mlp.inner_norm.exists()) {
    KVCAL_CHECK(parts.size() == 1);
    activate_normed(parts.front(), x.data());
  } else if (is_fused) {
    const std::vector<RowGroup> groups = groups_of(parts, &PackedMlp::in);
    backend_.matmul_activate({.x = x.data(),
                              .type = type_,
                              .groups = groups,
                              .gated = mlp.gated,
                              .activation = mlp.activation,
                              .width = mlp.width,
                              .scratch = buffers_.inner.as<float>(),
                              .out_type = type_,
                              .out = buffers_.activated.data(),
                              .is_decoding = is_decoding()});
  } else {
    for_each_part(parts, x, width,
                  [&](const MlpPart& part, int64_t first_row, const std::byte* rows) {
                    activate_part(part, first_row, rows);
                  });
  }
  if (is_observed) observe_parts(parts, down_of(role), buffers_.activated, mlp.width);
}

void FeedForward::activate_normed(const MlpPart& part, const std::byte* x) {
  const PackedMlp& mlp = part.mlp;
  float* const inner = buffers_.unnormed_inner.as<float>();
  activate_rows(part, x, ComputeType::kFloat32, inner, {});
  backend_.norm({.x = inner,
                 .weight = mlp.inner_norm.get(),
                 .epsilon = config_.norm_eps,
                 .rows = part.rows,
                 .width = mlp.width,
                 .out_type = type_,
                 .out = buffers_.activated.data(),
                 .seen = part.seen});
}

void FeedForward::activate_weighed(const MlpPart& part, const float* weights) {
  float* const inner = buffers_.unnormed_inner.as<float>();
  activate_rows(part, buffers_.normed.data(), ComputeType::kFloat32, inner, {});
  backend_.multiply_gate({.x = {.data = inner, .row_stride = part.mlp.width},
                          .gate = {.data = weights, .row_stride = 1},
                          .gate_per_head = true,
                          .function = GateFunction::kIdentity,
                          .rows = part.rows,
                          .width = part.mlp.width,
                          .out_type = type_,
                          .out = buffers_.activated.data(),
                          .seen = part.seen});
}

void FeedForward::activate_part(const MlpPart& part, int64_t first_row, const std::byte* x) {
  activate_rows(
      part, x, type_,
      buffers_.activated.data() + static_cast<size_t>(first_row * part.mlp.width) * bytes_of(type_),
      part.seen);
}

void FeedForward::activate_rows(const MlpPart& part, const std::byte* x, ComputeType out_type,
                                void* out, AmaxSlot seen) {
  const PackedMlp& mlp = part.mlp;
  const int64_t stride = mlp.in.matrix->out_features;
  // Where the backend's products activate, no room for inner rows is reserved.
  float* inner = buffers_.inner.size() > 0
                     ? buffers_.inner.as<float>()
                     : grown<float>(backend_, context_.scratch.inner, part.rows * stride);
  project(x, mlp.in, part.rows, inner);
  if (mlp.deviations)
    backend_.keep_outliers({.x = inner,
                            .rows = part.rows,
                            .width = mlp.width,
                            .row_stride = stride,
                            .deviations = *mlp.deviations});
  backend_.activate({.x = inner,
                     .gated = mlp.gated,
                     .activation = mlp.activation,
                     .rows = part.rows,
                     .width = mlp.width,
                     .out_type = out_type,
                     .out = out,
                     .seen = seen});
}

void FeedForward::score_experts(const float* hidden) {
  // Choices are discrete, so the router computes in float32 for every compute type.
  const void* input = buffers_.normed.data();
  const PackedNorm& own = layer().moe.router_norm;
  if (type_ != ComputeType::kFloat32 || own.exists()) {
    const PackedNorm& shared = config_.has_mlp_norm ? layer().mlp_norm : layer().input_norm;
    const AmaxSlot seen = slot_of(Role::kRouter);
    if (config_.mixes_streams())
      convert(ComputeType::kFloat32, buffers_.stream_input.as<float>(), config_.hidden_size,
              buffers_.router_input.data(), seen);
    else if (config_.norms_stream)
      convert(ComputeType::kFloat32, hidden, config_.hidden_size, buffers_.router_input.data(),
              seen);
    else
      normalize(hidden, own.exists() ? own : shared, ComputeType::kFloat32,
                buffers_.router_input.data(), seen);
    input = buffers_.router_input.data();
  }
  observe({.role = Role::kRouter, .x = input, .rows = rows(), .width = config_.hidden_size});
  project(input, layer().moe.router, rows(), buffers_.router_logits.as<float>());
}

std::vector<int32_t> FeedForward::route() {
  const PackedExperts& experts = layer().moe;
  const int64_t stride = experts.router.matrix->out_features;
  const RouteArgs args{.rule = router_rule(config_, experts_per_token(), experts),
                       .logits = buffers_.router_logits.as<float>(),
                       .correction = experts.correction.get(),
                       .expert_scales = experts.expert_scales.get(),
                       .rows = rows(),
                       .row_stride = stride,
                       .scratch = buffers_.router_scratch.as<float>(),
                       .chosen = buffers_.chosen.as<int32_t>(),
                       .chosen_weights = buffers_.chosen_weights.as<float>(),
                       .tokens = buffers_.expert_tokens.as<int32_t>(),
                       .weights = buffers_.expert_weights.as<float>(),
                       .places = buffers_.router_scratch.as<int32_t>(),
                       .counts = expert_counts_.as<int32_t>(),
                       .shared_weights = buffers_.shared_weights.as<float>()};
  backend_.route(args);
  std::vector<int32_t> counts = downloaded(backend_, args.counts, args.rule.experts + 1);
  if (const int32_t unusable = counts.back(); unusable != 0) {
    const int64_t token = rows() - unusable;
    const std::vector<float> logits =
        downloaded(backend_, args.logits + token * stride, args.rule.experts);
    const auto is_bad = [](float logit) { return !std::isfinite(logit); };
    fail("the router gives ", *std::ranges::find_if(logits, is_bad), " for token ", token,
         " of a batch");
  }
  counts.pop_back();
  return counts;
}

void FeedForward::mix_experts(float* out) {
  const PackedExperts& experts = layer().moe;
  if (has_latent()) {
    fold(slot_of(Role::kExpertsIn), buffers_.normed.data(), rows() * config_.hidden_size, type_);
    observe(Role::kExpertsIn, buffers_.normed, config_.hidden_size);
    project(buffers_.normed, experts.in, buffers_.latent_sum);
    convert(type_, buffers_.latent_sum.as<float>(), expert_width(), buffers_.expert_input.data(),
            {});
    mix_chosen(cleared(buffers_.latent_sum, expert_width()));
    if (experts.sum_norm.exists())
      backend_.norm_heads({.x = view(buffers_.latent_sum.as<float>(), expert_width()),
                           .weight = experts.sum_norm.weight.get(),
                           .epsilon = config_.norm_eps});
    convert_input(Role::kExpertsOut, buffers_.latent_sum.as<float>(), expert_width(),
                  buffers_.expert_input);
    project(buffers_.expert_input.data(), experts.out, rows(), out, true);
  } else {
    mix_chosen(out);
  }
  if (experts.shared.width > 0) add_shared(experts.shared, out);
  for (int64_t i = 0; i < std::ssize(experts.scored_shared); ++i) add_scored(i, out);
}

void FeedForward::mix_chosen(float* out) {
  // The one wait of a batch in a layer: how many rows each expert multiplies.
  const std::vector<int32_t> counts = route();
  const bool shows_all = shows_all_experts_ && (context_.observer || context_.slot_of);
  if (shows_all) show_experts();
  std::vector<int32_t> tokens;  // of experts whose inputs are observed by sample
  if (context_.observer && !shows_all)
    tokens =
        downloaded(backend_, buffers_.expert_tokens.as<int32_t>(), rows() * experts_per_token());
  ExpertWave wave;
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t count = counts[i], begin = wave.first + wave.count;
    if (count == 0) continue;
    if (wave.count + count > context_.most_rows) {
      add_experts(wave, !shows_all, out);
      wave = {.first = begin};
    }
    const auto index = static_cast<int64_t>(i);
    MlpPart part{.mlp = layer().moe.experts[i], .rows = count, .index = index};
    if (!shows_all) part.seen = slot_of(Role::kExpertDown, index);
    if (!tokens.empty())
      part.segments = segments_of(
          std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
    wave.parts.push_back(std::move(part));
    wave.count += count;
  }
  if (wave.count > 0) add_experts(wave, !shows_all, out);
}

void FeedForward::show_experts() {
  for (size_t i = 0; i < layer().moe.experts.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    fold(slot_of(Role::kExpertUp, index), expert_input().data(), rows() * expert_width(), type_);
    activate_all(layer().moe.experts[i], expert_input(), Role::kExpertUp, index);
  }
}

std::vector<Segment> FeedForward::segments_of(std::span<const int32_t> tokens) const {
  std::vector<Segment> result;
  int64_t begin = 0;
  for (const Segment& segment : batch().segments) {
    int64_t end = begin;
    while (end < std::ssize(tokens) &&
           tokens[static_cast<size_t>(end)] < segment.q_begin + segment.q_count)
      ++end;
    result.push_back({.q_begin = begin, .q_count = end - begin});
    begin = end;
  }
  return result;
}

void FeedForward::gather(const ExpertWave& wave) {
  const bool weighs = config_.architecture->weighs_expert_inputs;
  // Weights multiply float32 rows, which are rounded once, after that.
  const bool widens = weighs && type_ != ComputeType::kFloat32;
  KVCAL_CHECK(!weighs || !has_latent());
  const Buffer& out = weighs ? buffers_.expert_out : buffers_.gathered;
  backend_.gather_rows({.x = (widens ? buffers_.router_input : expert_input()).data(),
                        .type = weighs ? ComputeType::kFloat32 : type_,
                        .rows = buffers_.expert_tokens.as<int32_t>() + wave.first,
                        .count = wave.count,
                        .width = expert_width(),
                        .out = out.data()});
  if (!weighs) return;
  backend_.multiply_gate(
      {.x = {.data = out.as<float>(), .row_stride = config_.hidden_size},
       .gate = {.data = buffers_.expert_weights.as<float>() + wave.first, .row_stride = 1},
       .gate_per_head = true,
       .function = GateFunction::kIdentity,
       .rows = wave.count,
       .width = config_.hidden_size,
       .out_type = type_,
       .out = buffers_.gathered.data()});
}

void FeedForward::add_experts(const ExpertWave& wave, bool is_observed, float* out) {
  gather(wave);
  const int64_t width = expert_width();
  if (is_observed)
    for_each_part(wave.parts, buffers_.gathered, width,
                  [&](const MlpPart& part, int64_t, const std::byte* rows) {
                    fold(slot_of(Role::kExpertUp, part.index), rows, part.rows * width, type_);
                  });
  activate(wave.parts, buffers_.gathered, Role::kExpertUp, is_observed);
  float* const products = buffers_.expert_out.as<float>();
  if (are_plain(wave.parts, &PackedMlp::down)) {
    const std::vector<RowGroup> groups = groups_of(wave.parts, &PackedMlp::down);
    backend_.matmul_groups({.x = buffers_.activated.data(),
                            .type = type_,
                            .groups = groups,
                            .out = products,
                            .is_decoding = is_decoding()});
  } else {
    for_each_part(wave.parts, buffers_.activated, wave.parts.front().mlp.width,
                  [&](const MlpPart& part, int64_t first_row, const std::byte* rows) {
                    project(rows, part.mlp.down, part.rows, products + first_row * width);
                  });
  }
  const float* weights = buffers_.expert_weights.as<float>() + wave.first;
  backend_.combine_rows({.x = products,
                         .places = buffers_.router_scratch.as<int32_t>(),
                         .weights = config_.architecture->weighs_expert_inputs ? nullptr : weights,
                         .first = wave.first,
                         .count = wave.count,
                         .rows = rows(),
                         .per_row = experts_per_token(),
                         .width = width,
                         .out = out});
}

void FeedForward::add_shared(const PackedMlp& shared, float* out) {
  fold(slot_of(Role::kSharedUp), buffers_.normed.data(), rows() * config_.hidden_size, type_);
  activate_all(shared, buffers_.normed, Role::kSharedUp);
  project(buffers_.activated, shared.down, buffers_.expert_out);
  backend_.combine_rows({.x = buffers_.expert_out.as<float>(),
                         .weights = buffers_.shared_weights.as<float>(),
                         .count = rows(),
                         .rows = rows(),
                         .width = config_.hidden_size,
                         .out = out});
}

void FeedForward::add_scored(int64_t index, float* out) {
  const PackedMlp& shared = layer().moe.scored_shared[static_cast<size_t>(index)];
  fold(slot_of(Role::kSharedUp, index), buffers_.normed.data(), rows() * config_.hidden_size,
       type_);
  observe(Role::kSharedUp, buffers_.normed, config_.hidden_size, index);
  activate_weighed(
      {.mlp = shared, .rows = rows(), .index = index, .seen = slot_of(Role::kSharedDown, index)},
      buffers_.shared_weights.as<float>() + index * rows());
  observe(Role::kSharedDown, buffers_.activated, shared.width, index);
  project(buffers_.activated.data(), shared.down, rows(), out, true);
}

}  // namespace kvcal
