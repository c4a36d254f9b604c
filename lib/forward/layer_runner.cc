#include "forward/layer_runner.h"

#include <algorithm>

#include "family/architecture.h"
#include "forward/linear_product.h"
#include "forward/query_quantization.h"

namespace kvcal {

namespace {

/// The segments, each query with the keys of its own chunk.
std::vector<Segment> segments_in_chunks(std::span<const Segment> segments, int64_t chunk) {
  std::vector<Segment> result;
  for (const Segment& segment : segments) {
    const int64_t first = segment.kv_count - segment.q_count;  // position of the first query
    for (int64_t begin = first; begin < segment.kv_count;) {
      const int64_t chunk_begin = begin / chunk * chunk;
      const int64_t end = std::min(chunk_begin + chunk, segment.kv_count);
      result.push_back({.q_begin = segment.q_begin + begin - first,
                        .q_count = end - begin,
                        .kv_begin = segment.kv_begin + chunk_begin,
                        .kv_count = end - chunk_begin});
      begin = end;
    }
  }
  return result;
}

}  // namespace

LayerRunner::LayerRunner(const ModelConfig& config, Backend& backend, ComputeType type,
                         int64_t max_tokens)
    : config_(config),
      backend_(backend),
      type_(type),
      most_rows_(max_tokens),
      buffers_(config, backend, type) {
  buffers_.reserve(Reserved::kBatch, max_tokens);
  if (config.architecture->has_experts())
    expert_counts_ =
        backend.allocate(static_cast<size_t>(config.moe.num_experts + 1) * sizeof(int32_t));
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
                 .centered = config_.centers_norm,
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
       .bias = norm.bias.get(),
       .weight_per_head = config_.architecture->qk_norm == QkNorm::kPerHeadOwnWeight,
       .centered = config_.centers_norm,
       .epsilon = config_.norm_eps});
}

void LayerRunner::limit_heads(const HeadsView& heads) {
  if (config_.qkv_limit > 0.0f) backend_.clamp({.x = heads, .limit = config_.qkv_limit});
}

void LayerRunner::project(const void* x, const PackedLinear& linear, int64_t rows, float* out) {
  multiply(backend_, {.x = x,
                      .linear = linear,
                      .rows = rows,
                      .out = out,
                      .is_decoding = is_decoding_,
                      .scratch = &product_scratch_});
  if (!linear.factors.exists()) return;
  const int64_t width = linear.matrix->out_features;
  backend_.multiply_gate({.x = {.data = out, .row_stride = width},
                          .gate = {.data = linear.factors.get(), .row_stride = 0},
                          .function = GateFunction::kIdentity,
                          .rows = rows,
                          .width = width,
                          .out = out});
}

void LayerRunner::add_projected(const void* x, const PackedLinear& linear, const Branch& branch,
                                int64_t rows, float* hidden) {
  if (branch.adds_directly()) {
    multiply(backend_, {.x = x,
                        .linear = linear,
                        .accumulate = true,
                        .rows = rows,
                        .out = hidden,
                        .is_decoding = is_decoding_,
                        .scratch = &product_scratch_});
    return;
  }
  project(x, linear, rows, buffers_.projected);
  add_output(branch, rows, hidden);
}

void LayerRunner::add_output(const Branch& branch, int64_t rows, float* hidden) {
  backend_.residual_norm(output_args(branch, rows, hidden));
}

void LayerRunner::add_normed(const Buffer& x, const Branch& branch, int64_t rows, float* hidden) {
  ResidualNormArgs args = output_args(branch, rows, hidden);
  args.x = x.as<float>();
  backend_.residual_norm(args);
}

ResidualNormArgs LayerRunner::output_args(const Branch& branch, int64_t rows, float* hidden) const {
  KVCAL_CHECK(!branch.norm.bias.exists());  // no family's output norm has one
  return {.x = buffers_.projected.as<float>(),
          .output_weight = branch.norm.weight.get(),
          .multiplier = branch.multiplier,
          .hidden = hidden,
          .centered = config_.centers_norm,
          .epsilon = config_.norm_eps,
          .rows = rows,
          .width = config_.hidden_size,
          .scratch = buffers_.output_normed.as<float>()};
}

bool LayerRunner::add_mixed(const PackedLayer& layer, const void* x, const PackedLinear& linear,
                            float multiplier, int64_t rows, float* hidden) {
  const Branch way = branch(layer.attention_output_norm, multiplier);
  const bool has_next = config_.has_mlp_norm && !config_.parallel_residual &&
                        !layer.laurel.up.matrix && has_feed_forward(layer) &&
                        layer.mlp_norm.exists();
  if (way.adds_directly() || !has_next) {
    add_projected(x, linear, way, rows, hidden);
    return false;
  }
  project(x, linear, rows, buffers_.projected);
  ResidualNormArgs args = output_args(way, rows, hidden);
  args.next_weight = layer.mlp_norm.weight.get();
  args.next_bias = layer.mlp_norm.bias.get();
  args.out_type = type_;
  args.out = buffers_.normed.data();
  args.seen = mlp_input_slot(layer);
  backend_.residual_norm(args);
  return true;
}

RopeArgs LayerRunner::rope_of(const HeadsView& heads, int64_t layer_index, const TokenBatch& batch,
                              const RopeTables& ropes, bool is_query) const {
  const int64_t rope = config_.layers[static_cast<size_t>(layer_index)].rope;
  if (rope == kNoRope) return {};
  const RopeTable& table = ropes.table(rope);
  if (table.rotary_dim() == 0) return {};
  return {.x = heads,
          .positions = batch.positions[static_cast<size_t>(rope)],
          .cos = is_query ? table.query_cos() : table.cos(),
          .sin = is_query ? table.query_sin() : table.sin(),
          .rotary_dim = table.rotary_dim(),
          .interleaved = config_.rope_is_interleaved};
}

void LayerRunner::grow_unturned(const HeadsView& queries, int64_t layer_index,
                                const TokenBatch& batch, const RopeTables& ropes) {
  const int64_t rope = config_.layers[static_cast<size_t>(layer_index)].rope;
  if (rope == kNoRope) return;
  const RopeTable& table = ropes.table(rope);
  if (!table.growth_cos()) return;
  backend_.rope({.x = queries,
                 .positions = batch.positions[static_cast<size_t>(rope)],
                 .cos = table.growth_cos(),
                 .sin = table.growth_sin(),
                 .rotary_dim = table.unturned_dim()});
}

void LayerRunner::begin_batch(int64_t layer_index, const TokenBatch& batch) {
  layer_index_ = layer_index;
  is_decoding_ = batch.is_decoding && !batch.has_fixed_products;
  segments_ = batch.segments;
}

LayerRunner::KeysValues LayerRunner::keys_values(const PackedLayer& layer, int64_t layer_index,
                                                 const float* hidden, const TokenBatch& batch,
                                                 const RopeTables& ropes) {
  begin_batch(layer_index, batch);
  const float* active =
      config_.streams > 1 ? predict_streams(layer, hidden, batch.num_tokens) : hidden;
  normalize(active, layer.input_norm, batch.num_tokens, type_, buffers_.normed.data(),
            slot_of(Role::kQuery));
  observe(Role::kQuery, buffers_.normed, batch.num_tokens, config_.hidden_size);
  if (!config_.layer(layer_index).has_own_cache) return {};
  project(buffers_.normed, layer.key_value, batch.num_tokens, buffers_.key_value);
  if (config_.architecture->has_latent_attention)
    return latent_keys_values(layer, layer_index, batch, ropes);
  const AttentionSizes& sizes = config_.attention(layer_index);
  HeadsView k{.data = buffers_.key_value.as<float>(),
              .tokens = batch.num_tokens,
              .heads = sizes.kv_heads,
              .head_dim = sizes.head_dim,
              .row_stride = sizes.key_width() + sizes.value_width()};
  HeadsView v = k;
  v.data += sizes.key_width();
  v.head_dim = sizes.value_dim;
  RopeArgs rope = rope_of(k, layer_index, batch, ropes, false);
  if (config_.architecture->norms_after_rope && rope.x.data) {
    backend_.rope(rope);
    rope = {};
  }
  normalize_heads(k, layer.key_norm);
  normalize_heads(v, layer.value_norm);
  limit_heads(k);
  limit_heads(v);
  if (config_.value_multiplier != 1.0f)
    backend_.scale({.x = v, .factor = config_.value_multiplier});
  return {k, v, rope};
}

size_t LayerRunner::bytes_of_tokens(const Buffer& buffer, int64_t tokens) const {
  return buffer.size() / static_cast<size_t>(most_rows_) * static_cast<size_t>(tokens);
}

uint64_t LayerRunner::kept_bytes(int64_t tokens) const {
  return bytes_of_tokens(buffers_.normed, tokens) + bytes_of_tokens(buffers_.key_value, tokens);
}

LayerRunner::Kept LayerRunner::make_kept(int64_t tokens) {
  Kept kept;
  kept.normed = backend_.allocate(bytes_of_tokens(buffers_.normed, tokens));
  kept.key_value = backend_.allocate(bytes_of_tokens(buffers_.key_value, tokens));
  return kept;
}

void LayerRunner::exchange(Kept& kept) {
  std::swap(buffers_.normed, kept.normed);
  std::swap(buffers_.key_value, kept.key_value);
}

LayerRunner::KeysValues LayerRunner::keys_values_of(const Kept& kept, const TokenBatch& batch) {
  begin_batch(kept.layer, batch);
  fold(slot_of(Role::kQuery), buffers_.normed.data(), batch.num_tokens * config_.hidden_size,
       type_);
  observe(Role::kQuery, buffers_.normed, batch.num_tokens, config_.hidden_size);
  return kept.made;
}

HeadsView LayerRunner::query_view(int64_t layer_index, int64_t tokens) const {
  const AttentionSizes& sizes = config_.attention(layer_index);
  return {.data = buffers_.query.as<float>(),
          .tokens = tokens,
          .heads = sizes.heads,
          .head_dim = sizes.head_dim,
          .row_stride = sizes.query_width()};
}

bool LayerRunner::turns_in_attention(int64_t layer_index, const RopeTables& ropes,
                                     const KvStorage& storage, const SeenQueries& seen) const {
  const int64_t rope = config_.layers[static_cast<size_t>(layer_index)].rope;
  const bool grows = rope != kNoRope && ropes.table(rope).growth_cos();
  return backend_.turns_queries() && !seen.are_wanted() && !storage.q_scales && !grows &&
         !config_.architecture->has_latent_attention && !config_.architecture->norms_after_rope;
}

void LayerRunner::query(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                        const RopeTables& ropes, const SeenQueries& seen) {
  make_query(layer, layer_index, batch, ropes, seen, false);
}

void LayerRunner::make_query(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                             const RopeTables& ropes, const SeenQueries& seen, bool turns_later) {
  const int64_t tokens = batch.num_tokens;
  if (layer.query_down.matrix) {
    query_of_rank(layer, tokens);
  } else {
    project(buffers_.normed, layer.query, tokens, buffers_.query);
  }
  const HeadsView q = query_view(layer_index, tokens);
  const bool norms_last = config_.architecture->norms_after_rope;
  if (!norms_last) normalize_heads(q, layer.query_norm);
  limit_heads(q);
  HeadsView turned = q;
  if (config_.architecture->has_latent_attention)
    turned.data += config_.latent.nope_dim;  // the last dimensions of each head turn
  const RopeArgs rope = rope_of(turned, layer_index, batch, ropes, true);
  query_rope_ = turns_later ? rope : RopeArgs{};
  if (rope.x.data && !turns_later) backend_.rope(rope);
  grow_unturned(q, layer_index, batch, ropes);
  if (norms_last) normalize_heads(q, layer.query_norm);
  if (seen.ranges)
    backend_.observe_kv(
        {.x = q, .segments = batch.segments, .ranges = seen.ranges, .histogram = seen.histogram});
  if (seen.keep) seen.keep(q);
}

void LayerRunner::run_final_norm(const PackedNorm& norm, const float* hidden,
                                 const TokenBatch& batch) {
  segments_ = batch.segments;
  normalize(hidden, norm, batch.num_tokens, type_, buffers_.normed.data(), slot_of(Role::kLmHead));
  observe(Role::kLmHead, buffers_.normed, batch.num_tokens, config_.hidden_size);
}

void LayerRunner::quantize_query(int64_t layer_index, int64_t tokens, const KvStorage& storage) {
  if (!storage.q_scales) return;
  buffers_.reserve(Reserved::kQuantizedQueries, tokens);
  kvcal::quantize_query(backend_, {.q = query_view(layer_index, tokens),
                                   .dtype = storage.q_dtype,
                                   .scales = storage.q_scales,
                                   .codes = buffers_.query_codes.as<uint8_t>(),
                                   .saturated = storage.q_saturated});
}

void LayerRunner::finish(const PackedLayer& layer, int64_t layer_index, float* all_hidden,
                         const TokenBatch& batch, const RopeTables& ropes, const KvStorage& storage,
                         const SeenQueries& seen) {
  const int64_t tokens = batch.num_tokens;
  float* const hidden = config_.streams > 1 ? begin_stream(tokens) : all_hidden;
  if (layer.laurel.up.matrix) make_laurel(layer, hidden, tokens);
  make_query(layer, layer_index, batch, ropes, seen,
             turns_in_attention(layer_index, ropes, storage, seen));
  quantize_query(layer_index, tokens, storage);
  const KeySelection selection = select_keys(layer, layer_index, hidden, batch, ropes, storage);
  attend(layer, layer_index, batch, storage, selection);
  if (layer.query_gate.matrix) gate_attended(layer, layer_index, tokens);
  observe(Role::kOutput, buffers_.attended, tokens,
          config_.attention(layer_index).attended_width());
  // With a parallel residual both read the layer's input, so the MLP runs before anything is added.
  if (config_.parallel_residual) feed_forward(layer, hidden, tokens, false);
  if (config_.layer(layer_index).has_recurrence) {
    KVCAL_CHECK(!config_.parallel_residual && !layer.attention_output_norm.exists());
    mix(layer, hidden, batch, storage.state);
    add_projected(buffers_.mixed.data(), layer.recurrence.out,
                  branch(layer.attention_output_norm, config_.mixer_output_multiplier), tokens,
                  hidden);
  }
  const bool is_normed = add_mixed(layer, buffers_.attended.data(), layer.output,
                                   config_.attention_output_multiplier, tokens, hidden);
  if (layer.laurel.up.matrix) add_laurel(hidden, tokens);
  if (!config_.parallel_residual) feed_forward(layer, hidden, tokens, is_normed);
  if (config_.streams > 1) correct_streams(layer, all_hidden, tokens);
  if (layer.input.gate.matrix) add_layer_input(layer, layer_index, all_hidden, tokens);
  if (!layer.streams.outputs.empty()) join_streams(layer.streams, all_hidden, tokens);
  if (layer.scalar != 1.0f)
    backend_.scale({.x = {hidden, tokens, 1, config_.hidden_size, config_.hidden_size},
                    .factor = layer.scalar});
}

void LayerRunner::attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                         const KvStorage& storage, const KeySelection& selection) {
  const std::span<const Segment> all = batch.segments;
  if (const int64_t chunk = config_.layers[static_cast<size_t>(layer_index)].chunk; chunk > 0) {
    KVCAL_CHECK(!batch.current_segments);  // their lengths change with each recorded step
    return attend(layer, layer_index, batch, storage, segments_in_chunks(all, chunk));
  }
  if (!config_.architecture->has_latent_attention)
    return attend(layer, layer_index, batch, storage, all);
  // Sequences of a cache one by one: expanded together they would need many times its memory.
  const size_t together = batch.slots.size() > 1 ? 1 : all.size();
  for (size_t i = 0; i < all.size(); i += together) {
    const ExpandedLatent expanded = expand(layer, all.subspan(i, together), storage);
    attend(layer, layer_index, batch, expanded, selection);
  }
}

void LayerRunner::attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                         const KvStorage& kv, std::span<const Segment> segments,
                         const KeySelection& selection) {
  const AttentionSizes& sizes = config_.attention(layer_index);
  const bool has_gate = layer.query_gate.matrix != nullptr;
  backend_.attention(
      {.q = buffers_.query.as<float>(),
       .q_row_stride = sizes.query_width(),
       .rope = query_rope_,
       .k = kv.k,
       .v = kv.v,
       .kv_dtype = kv.dtype,
       .k_scales = kv.k_scales,
       .v_scales = kv.v_scales,
       .segments = segments,
       .current_segments = batch.current_segments,
       .heads = sizes.heads,
       .kv_heads = sizes.kv_heads,
       .head_dim = sizes.head_dim,
       .v_head_dim = sizes.value_dim,
       .softmax_scale = config_.softmax_scale,
       .softcap = config_.attention_softcap,
       .sinks = layer.sinks.get(),
       .sliding_window = config_.layers[static_cast<size_t>(layer_index)].sliding_window,
       .selection = selection,
       .product_type = type_,
       .out_type = has_gate ? ComputeType::kFloat32 : type_,
       .out = has_gate ? buffers_.ungated.data() : buffers_.attended.data(),
       .seen = has_gate ? AmaxSlot{} : slot_of(Role::kOutput),
       .weight_scale = kv.weight_scale,
       .is_decoding = batch.is_decoding});
}

void LayerRunner::gate_attended(const PackedLayer& layer, int64_t layer_index, int64_t rows) {
  const AttentionSizes& sizes = config_.attention(layer_index);
  const int64_t width = sizes.attended_width(), gates = layer.query_gate.matrix->out_features;
  project(buffers_.normed, layer.query_gate, rows, buffers_.query_gate);
  backend_.multiply_gate({.x = {.data = buffers_.ungated.as<float>(), .row_stride = width},
                          .gate = {.data = buffers_.query_gate.as<float>(), .row_stride = gates},
                          .gate_per_head = config_.gates_whole_heads,
                          .function = config_.architecture->has_softplus_gate
                                          ? GateFunction::kSoftplus
                                          : GateFunction::kSigmoid,
                          .rows = rows,
                          .heads = sizes.heads,
                          .width = sizes.value_dim,
                          .out_type = type_,
                          .out = buffers_.attended.data(),
                          .seen = slot_of(Role::kOutput)});
}

}  // namespace kvcal
