#include "forward/layer_runner.h"

#include <algorithm>

#include "family/architecture.h"
#include "forward/linear_product.h"
#include "forward/query_quantization.h"

namespace kvcal {
namespace {

/// Widths of a token's activations, in elements.
struct Widths {
  Widths(const ModelConfig& config, const Backend& backend)
      : hidden(static_cast<size_t>(config.hidden_size)),
        query(static_cast<size_t>(config.query_width())),
        query_rank(static_cast<size_t>(config.latent.query_rank)),
        key_value(static_cast<size_t>(config.architecture->has_latent_attention
                                          ? config.size_of(Dim::kLatentWidth)
                                          : 2 * config.kv_width())),
        attended(static_cast<size_t>(config.attended_width())),
        query_gate(config.architecture->has_query_gate ? query : 0),
        mixed_in(static_cast<size_t>(config.recurrent.heads == 0
                                         ? 0
                                         : config.recurrent.inner() + config.recurrent.channels +
                                               2 * config.recurrent.heads)),
        channels(config.recurrent.heads == 0 ? 0 : static_cast<size_t>(config.recurrent.channels)),
        mixed(static_cast<size_t>(config.recurrent.inner())),
        step_rank(static_cast<size_t>(config.recurrent.step_rank)),
        states(step_rank == 0 ? 0
                              : step_rank + 2 * static_cast<size_t>(config.recurrent.state_dim)),
        inner(static_cast<size_t>(std::max(config.moe.shared_intermediate_size, widest(config)))),
        projected_inner(backend.activates_in_matmul() ? 0 : 2 * inner),
        expert_hidden(config.architecture->has_experts() ? hidden : 0),
        logits(config.architecture->has_experts() ? static_cast<size_t>(config.moe.num_experts + 1)
                                                  : 0) {}

  static int64_t widest(const ModelConfig& config) {
    int64_t width = 0;
    for (const LayerConfig& layer : config.layers)
      width =
          std::max(width, layer.is_moe ? config.moe.intermediate_size : config.intermediate_size);
    return width;
  }
  size_t steps() const { return step_rank == 0 ? 0 : mixed; }
  size_t bytes(size_t element) const {
    return element * (hidden + query_rank + attended + mixed + step_rank + inner + expert_hidden) +
           sizeof(float) * (query + 2 * query_gate + query_rank + key_value + mixed_in + channels +
                            mixed + steps() + step_rank + states + projected_inner + 2 * hidden +
                            2 * expert_hidden + logits);
  }

  size_t hidden, query, query_rank, key_value, attended, query_gate, mixed_in, channels, mixed,
      step_rank, states, inner, projected_inner, expert_hidden, logits;
};

}  // namespace

size_t LayerRunner::bytes_per_token(const ModelConfig& config, ComputeType type,
                                    const Backend& backend) {
  size_t expanded = 0;
  if (config.architecture->has_latent_attention)
    expanded = sizeof(float) *
               static_cast<size_t>(config.size_of(Dim::kLatentUpWidth) + config.query_width() +
                                   config.attended_width() + config.size_of(Dim::kLatentWidth));
  return Widths(config, backend).bytes(bytes_of(type)) + expanded;
}

LayerRunner::LayerRunner(const ModelConfig& config, Backend& backend, ComputeType type,
                         int64_t max_tokens)
    : config_(config), backend_(backend), type_(type) {
  const Widths widths(config, backend);
  const auto reserve = [&](Buffer& buffer, size_t width, size_t element) {
    if (width > 0) buffer = backend.allocate(static_cast<size_t>(max_tokens) * width * element);
  };
  const size_t element = bytes_of(type);
  reserve(normed_, widths.hidden, element);
  reserve(query_, widths.query, sizeof(float));
  reserve(query_down_, widths.query_rank, sizeof(float));
  reserve(query_normed_, widths.query_rank, element);
  reserve(key_value_, widths.key_value, sizeof(float));
  reserve(attended_, widths.attended, element);
  reserve(ungated_, widths.query_gate, sizeof(float));
  reserve(query_gate_, widths.query_gate, sizeof(float));
  reserve(mixed_in_, widths.mixed_in, sizeof(float));
  reserve(convolved_, widths.channels, sizeof(float));
  reserve(states_, widths.states, sizeof(float));
  reserve(step_rank_, widths.step_rank, sizeof(float));
  reserve(step_input_, widths.step_rank, element);
  reserve(steps_, widths.steps(), sizeof(float));
  reserve(scanned_, widths.mixed, sizeof(float));
  reserve(mixed_, widths.mixed, element);
  reserve(inner_, widths.projected_inner, sizeof(float));
  reserve(activated_, widths.inner, element);
  reserve(projected_, widths.hidden, sizeof(float));
  reserve(output_normed_, widths.hidden, sizeof(float));
  reserve(router_input_, widths.expert_hidden, sizeof(float));
  reserve(router_logits_, widths.logits, sizeof(float));
  reserve(gathered_, widths.expert_hidden, element);
  reserve(expert_out_, widths.expert_hidden, sizeof(float));
}

void LayerRunner::observe(LinearInput input) {
  if (!observer_) return;
  input.layer = layer_index_;
  if (input.segments.empty()) input.segments = segments_;
  observer_(input);
}

void LayerRunner::fold(AmaxSlot slot, const void* x, int64_t count, ComputeType type) {
  if (slot)
    backend_.observe_amax(
        {.x = x, .type = type, .count = count, .amax = slot.amax, .nonfinite = slot.nonfinite});
}

void LayerRunner::convert(ComputeType type, const float* x, int64_t rows, int64_t width, void* out,
                          AmaxSlot seen) {
  backend_.load_kv({.x = x,
                    .dtype = KvDType::kFloat32,
                    .rows = rows,
                    .heads = 1,
                    .head_dim = width,
                    .out_type = type,
                    .out = out});
  fold(seen, out, rows * width, type);
}

void LayerRunner::normalize(const float* x, const PackedNorm& norm, int64_t rows, ComputeType type,
                            void* out, AmaxSlot seen) {
  if (!norm.exists()) {  // families that norm outputs only
    convert(type, x, rows, config_.hidden_size, out, seen);
    return;
  }
  backend_.norm({.x = x,
                 .weight = norm.weight.get(),
                 .bias = norm.bias.get(),
                 .centered = config_.architecture->centers_norm,
                 .epsilon = config_.norm_eps,
                 .rows = rows,
                 .width = config_.hidden_size,
                 .out_type = type,
                 .out = out,
                 .seen = seen});
}

void LayerRunner::normalize_heads(const HeadsView& heads, const PackedNorm& norm) {
  if (!norm.exists()) return;
  HeadsView x = heads;
  if (config_.architecture->qk_norm == QkNorm::kWhole) {
    x.head_dim *= x.heads;
    x.heads = 1;
  }
  backend_.norm_heads(
      {.x = x,
       .weight = norm.weight.get(),
       .weight_per_head = config_.architecture->qk_norm == QkNorm::kPerHeadOwnWeight,
       .centered = config_.architecture->centers_norm,
       .epsilon = config_.norm_eps});
}

void LayerRunner::project(const void* x, const PackedLinear& linear, int64_t rows, float* out) {
  multiply(backend_, {.x = x,
                      .linear = linear,
                      .rows = rows,
                      .out = out,
                      .is_decoding = is_decoding_,
                      .scratch = &product_scratch_});
}

bool LayerRunner::adds_directly(const PackedNorm& norm) const {
  return !norm.exists() && config_.residual_multiplier == 1.0f;
}

void LayerRunner::add_projected(const void* x, const PackedLinear& linear, const PackedNorm& norm,
                                int64_t rows, float* hidden) {
  if (adds_directly(norm)) {
    multiply(backend_, {.x = x,
                        .linear = linear,
                        .accumulate = true,
                        .rows = rows,
                        .out = hidden,
                        .is_decoding = is_decoding_,
                        .scratch = &product_scratch_});
    return;
  }
  project(x, linear, rows, projected_.as<float>());
  add_output(norm, rows, hidden);
}

void LayerRunner::add_output(const PackedNorm& norm, int64_t rows, float* hidden) {
  backend_.residual_norm(output_args(norm, rows, hidden));
}

ResidualNormArgs LayerRunner::output_args(const PackedNorm& norm, int64_t rows,
                                          float* hidden) const {
  KVCAL_CHECK(!norm.bias.exists());  // no family's output norm has one
  return {.x = projected_.as<float>(),
          .output_weight = norm.weight.get(),
          .multiplier = config_.residual_multiplier,
          .hidden = hidden,
          .centered = config_.architecture->centers_norm,
          .epsilon = config_.norm_eps,
          .rows = rows,
          .width = config_.hidden_size,
          .scratch = output_normed_.as<float>()};
}

bool LayerRunner::add_mixed(const PackedLayer& layer, const void* x, const PackedLinear& linear,
                            int64_t rows, float* hidden) {
  const PackedNorm& norm = layer.attention_output_norm;
  const bool has_next = config_.has_mlp_norm && !config_.parallel_residual &&
                        has_feed_forward(layer) && layer.mlp_norm.exists();
  if (adds_directly(norm) || !has_next) {
    add_projected(x, linear, norm, rows, hidden);
    return false;
  }
  project(x, linear, rows, projected_.as<float>());
  ResidualNormArgs args = output_args(norm, rows, hidden);
  args.next_weight = layer.mlp_norm.weight.get();
  args.next_bias = layer.mlp_norm.bias.get();
  args.out_type = type_;
  args.out = normed_.data();
  args.seen = mlp_input_slot(layer);
  backend_.residual_norm(args);
  return true;
}

RopeArgs LayerRunner::rope_of(const HeadsView& heads, int64_t layer_index, const TokenBatch& batch,
                              const RopeTables& ropes, bool is_query) const {
  const int64_t rope = config_.layers[static_cast<size_t>(layer_index)].rope;
  if (rope == kNoRope) return {};
  const RopeTable& table = ropes.table(rope);
  return {.x = heads,
          .positions = batch.positions[static_cast<size_t>(rope)],
          .cos = is_query ? table.query_cos() : table.cos(),
          .sin = is_query ? table.query_sin() : table.sin(),
          .rotary_dim = table.rotary_dim(),
          .interleaved = config_.rope_is_interleaved};
}

LayerRunner::KeysValues LayerRunner::keys_values(const PackedLayer& layer, int64_t layer_index,
                                                 const float* hidden, const TokenBatch& batch,
                                                 const RopeTables& ropes) {
  layer_index_ = layer_index;
  is_decoding_ = batch.is_decoding && !batch.has_fixed_products;
  segments_ = batch.segments;
  normalize(hidden, layer.input_norm, batch.num_tokens, type_, normed_.data(),
            slot_of(Role::kQuery));
  observe({.role = Role::kQuery,
           .x = normed_.data(),
           .type = type_,
           .rows = batch.num_tokens,
           .width = config_.hidden_size});
  project(normed_.data(), layer.key_value, batch.num_tokens, key_value_.as<float>());
  if (config_.architecture->has_latent_attention)
    return latent_keys_values(layer, layer_index, batch, ropes);
  HeadsView k{.data = key_value_.as<float>(),
              .tokens = batch.num_tokens,
              .heads = config_.num_key_value_heads,
              .head_dim = config_.head_dim,
              .row_stride = 2 * config_.kv_width()};
  HeadsView v = k;
  v.data += config_.kv_width();
  normalize_heads(k, layer.key_norm);
  return {k, v, rope_of(k, layer_index, batch, ropes, false)};
}

void LayerRunner::query(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                        const RopeTables& ropes, const SeenQueries& seen) {
  const int64_t tokens = batch.num_tokens;
  if (layer.query_down.matrix) {
    query_of_rank(layer, tokens);
  } else {
    project(normed_.data(), layer.query, tokens, query_.as<float>());
  }
  HeadsView q{.data = query_.as<float>(),
              .tokens = tokens,
              .heads = config_.num_attention_heads,
              .head_dim = config_.head_dim,
              .row_stride = config_.query_width()};
  normalize_heads(q, layer.query_norm);
  HeadsView turned = q;
  if (config_.architecture->has_latent_attention)
    turned.data += config_.latent.nope_dim;  // the last dimensions of each head turn
  const RopeArgs rope = rope_of(turned, layer_index, batch, ropes, true);
  if (rope.x.data) backend_.rope(rope);
  if (seen.ranges)
    backend_.observe_kv(
        {.x = q, .segments = batch.segments, .ranges = seen.ranges, .histogram = seen.histogram});
}

void LayerRunner::run_final_norm(const PackedNorm& norm, const float* hidden,
                                 const TokenBatch& batch) {
  segments_ = batch.segments;
  normalize(hidden, norm, batch.num_tokens, type_, normed_.data(), slot_of(Role::kLmHead));
  observe({.role = Role::kLmHead,
           .x = normed_.data(),
           .type = type_,
           .rows = batch.num_tokens,
           .width = config_.hidden_size});
}

void LayerRunner::quantize_query(int64_t tokens, const KvStorage& storage) {
  if (!storage.q_scales) return;
  kvcal::quantize_query(backend_, {.q = {.data = query_.as<float>(),
                                         .tokens = tokens,
                                         .heads = config_.num_attention_heads,
                                         .head_dim = config_.head_dim,
                                         .row_stride = config_.query_width()},
                                   .dtype = storage.dtype,
                                   .scales = storage.q_scales,
                                   .codes = &query_codes_,
                                   .saturated = storage.q_saturated});
}

void LayerRunner::finish(const PackedLayer& layer, int64_t layer_index, float* hidden,
                         const TokenBatch& batch, const RopeTables& ropes, const KvStorage& storage,
                         const SeenQueries& seen) {
  const int64_t tokens = batch.num_tokens;
  query(layer, layer_index, batch, ropes, seen);
  quantize_query(tokens, storage);
  attend(layer, layer_index, batch, storage);
  if (layer.query_gate.matrix) gate_attended(layer, tokens);
  observe({.role = Role::kOutput,
           .x = attended_.data(),
           .type = type_,
           .rows = tokens,
           .width = config_.attended_width()});
  // In parallel both read the layer's input, so the MLP goes before anything is added.
  if (config_.parallel_residual) feed_forward(layer, hidden, tokens, false);
  const bool is_normed = add_mixed(layer, attended_.data(), layer.output, tokens, hidden);
  if (!config_.parallel_residual) feed_forward(layer, hidden, tokens, is_normed);
}

void LayerRunner::attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                         const KvStorage& storage) {
  const std::span<const Segment> all = batch.segments;
  if (!config_.architecture->has_latent_attention)
    return attend(layer, layer_index, batch, storage, all);
  // A cache's sequences one by one: expanded together they would take many times its memory.
  const size_t together = batch.slots.size() > 1 ? 1 : all.size();
  for (size_t i = 0; i < all.size(); i += together) {
    const ExpandedLatent expanded = expand(layer, all.subspan(i, together), storage);
    attend(layer, layer_index, batch, expanded.storage, expanded.segments);
  }
}

void LayerRunner::attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                         const KvStorage& kv, std::span<const Segment> segments) {
  const bool is_latent = config_.architecture->has_latent_attention;
  const bool has_gate = layer.query_gate.matrix != nullptr;
  backend_.attention(
      {.q = query_.as<float>(),
       .q_row_stride = config_.query_width(),
       .k = kv.k,
       .v = kv.v,
       .kv_dtype = kv.dtype,
       .k_scales = kv.k_scales,
       .v_scales = kv.v_scales,
       .segments = segments,
       .current_segments = batch.current_segments,
       .heads = config_.num_attention_heads,
       .kv_heads = config_.num_key_value_heads,
       .head_dim = config_.head_dim,
       .v_head_dim = is_latent ? config_.latent.value_dim : config_.head_dim,
       .softmax_scale = config_.softmax_scale,
       .softcap = config_.attention_softcap,
       .sinks = layer.sinks.get(),
       .sliding_window = config_.layers[static_cast<size_t>(layer_index)].sliding_window,
       .product_type = type_,
       .out_type = has_gate ? ComputeType::kFloat32 : type_,
       .out = has_gate ? ungated_.data() : attended_.data(),
       .seen = has_gate ? AmaxSlot{} : slot_of(Role::kOutput),
       .is_decoding = batch.is_decoding});
}

void LayerRunner::gate_attended(const PackedLayer& layer, int64_t rows) {
  const int64_t width = config_.query_width();
  project(normed_.data(), layer.query_gate, rows, query_gate_.as<float>());
  backend_.multiply_gate({.x = {.data = ungated_.as<float>(), .row_stride = width},
                          .gate = {.data = query_gate_.as<float>(), .row_stride = width},
                          .rows = rows,
                          .width = width,
                          .out_type = type_,
                          .out = attended_.data(),
                          .seen = slot_of(Role::kOutput)});
}

}  // namespace kvcal
