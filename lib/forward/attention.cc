#include "forward/attention.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"

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

/// The segments of a batch whose tokens of images see all of their image: each of those alone, with
/// the keys that it sees, and the text between.
struct ImageSegments {
  std::vector<Segment> text, images;
};
ImageSegments split_at_images(const TokenBatch& batch, int64_t window) {
  ImageSegments split;
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Segment& all = batch.segments[i];
    const EmbeddedTokens* images = batch.embedded_of(i);
    int64_t text_begin = 0;
    const auto end_text = [&](int64_t token) {
      if (token > text_begin)
        split.text.push_back({.q_begin = all.q_begin + text_begin,
                              .q_count = token - text_begin,
                              .kv_begin = all.kv_begin,
                              .kv_count = token});
      text_begin = token + 1;
    };
    if (images)
      for (const int32_t token : images->positions) {
        end_text(token);
        const int64_t begin = window > 0 ? std::max<int64_t>(0, token - window + 1) : 0;
        split.images.push_back({.q_begin = all.q_begin + token,
                                .q_count = 1,
                                .kv_begin = all.kv_begin + begin,
                                .kv_count = images->last_of_image(token) + 1 - begin});
      }
    end_text(all.q_count);
  }
  return split;
}

}  // namespace

RopeArgs Attention::rope_of(const HeadsView& heads, bool is_query) const {
  const RopeTable* table = rope_table();
  if (!table || table->rotary_dim() == 0) return {};
  return {.x = heads,
          .positions = batch().positions[static_cast<size_t>(own().rope)],
          .cos = is_query ? table->query_cos() : table->cos(),
          .sin = is_query ? table->query_sin() : table->sin(),
          .rotary_dim = table->rotary_dim(),
          .interleaved = config_.rope_is_interleaved};
}

void Attention::normalize_heads(const HeadsView& heads, const PackedNorm& norm) {
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

void Attention::limit_heads(const HeadsView& heads) {
  if (config_.qkv_limit > 0.0f) backend_.clamp({.x = heads, .limit = config_.qkv_limit});
}

void Attention::project_keys_values(const LayerStates* states) {
  const PackedValues& convolution = layer().convolutions.key_value;
  if (!convolution.exists()) return project(buffers_.normed, layer().key_value, buffers_.key_value);
  project(buffers_.normed, layer().key_value, buffers_.short_convolved);
  const AttentionSizes& sizes = own().attention;
  convolve(buffers_.short_convolved, convolution, sizes.key_width() + sizes.value_width(), states,
           &LayerStates::key_value, buffers_.key_value);
}

KeysValues Attention::keys_values(const LayerStates* states) {
  project_keys_values(states);
  if (config_.architecture->has_latent_attention) return latent_keys_values();
  const AttentionSizes& sizes = own().attention;
  HeadsView k{.data = buffers_.key_value.as<float>(),
              .tokens = rows(),
              .heads = sizes.kv_heads,
              .head_dim = sizes.head_dim,
              .row_stride = sizes.key_width() + sizes.value_width()};
  HeadsView v = k;
  v.data += sizes.key_width();
  v.head_dim = sizes.value_dim;
  RopeArgs rope = rope_of(k, false);
  if (config_.architecture->norms_after_rope && rope.x.data) {
    backend_.rope(rope);
    rope = {};
  }
  normalize_heads(k, layer().key_norm);
  normalize_heads(v, layer().value_norm);
  limit_heads(k);
  limit_heads(v);
  if (config_.value_multiplier != 1.0f)
    backend_.scale({.x = v, .factor = config_.value_multiplier});
  return {k, v, rope};
}

KeysValues Attention::latent_keys_values() {
  const LatentConfig& latent = own().latent;
  const int64_t width = latent.width();
  const float* latents = buffers_.key_value.as<float>();
  const HeadsView k = view(latents, latent.latent_rank, width);
  const HeadsView v = view(latents + latent.latent_rank, latent.rope_dim, width);
  for (const auto& [x, norm] :
       {std::pair{&k, &layer().latent_norm}, {&v, &layer().latent_key_norm}})
    if (norm->exists())
      backend_.norm_heads({.x = *x, .weight = norm->weight.get(), .epsilon = latent.norm_eps});
  return {k, v, rope_of(v, false)};
}

HeadsView Attention::query_view() const {
  const AttentionSizes& sizes = own().attention;
  return contiguous(buffers_.query.as<float>(), rows(), sizes.heads, sizes.head_dim);
}

bool Attention::turns_in_attention(const KvView& storage, const ObservedQueries& seen) const {
  const bool grows = rope_table() && rope_table()->growth_cos();
  return backend_.turns_queries() && !seen.are_wanted() && !storage.q_scales && !grows &&
         !sees_images_whole() &&  // whose attention is two operations
         !config_.architecture->has_latent_attention && !config_.architecture->norms_after_rope;
}

void Attention::make_query(const ObservedQueries& seen, bool turns_later) {
  if (layer().query_down.matrix)
    project_query_of_rank();
  else
    project(buffers_.normed, layer().query, buffers_.query);
  const HeadsView q = query_view();
  const bool norms_last = config_.architecture->norms_after_rope;
  if (!norms_last) normalize_heads(q, layer().query_norm);
  limit_heads(q);
  HeadsView turned = q;
  if (config_.architecture->has_latent_attention)
    turned.data += own().latent.nope_dim;  // the last dimensions of each head turn
  const RopeArgs rope = rope_of(turned, true);
  query_rope_ = turns_later ? rope : RopeArgs{};
  if (rope.x.data && !turns_later) backend_.rope(rope);
  grow_unturned(q);
  make_relative();
  if (norms_last) normalize_heads(q, layer().query_norm);
  if (seen.ranges)
    backend_.observe_kv(
        {.x = q, .segments = batch().segments, .ranges = seen.ranges, .histogram = seen.histogram});
  if (seen.keep) seen.keep(q, relative_view());
}

HeadsView Attention::relative_view() const {
  if (!layer().relative.matrix) return {};
  return contiguous(buffers_.relative.as<float>(), rows(), own().attention.heads,
                    config_.relative_rank);
}

void Attention::make_relative() {
  if (!layer().relative.matrix) return;
  project(buffers_.normed, layer().relative, buffers_.relative);
  grow_unturned(relative_view());
}

void Attention::project_query_of_rank() {
  const LatentConfig& latent = own().latent;
  project(buffers_.normed, layer().query_down, buffers_.query_down);
  backend_.norm({.x = buffers_.query_down.as<float>(),
                 .weight = layer().query_down_norm.weight.get(),
                 .epsilon = latent.norm_eps,
                 .rows = rows(),
                 .width = latent.query_rank,
                 .out_type = type_,
                 .out = buffers_.query_normed.data(),
                 .seen = slot_of(Role::kQueryUp)});
  observe(Role::kQueryUp, buffers_.query_normed, latent.query_rank);
  project(buffers_.query_normed, layer().query, buffers_.query);
}

void Attention::grow_unturned(const HeadsView& queries) {
  const RopeTable* table = rope_table();
  if (!table || !table->growth_cos()) return;
  HeadsView parts = queries;
  if (!config_.architecture->has_latent_attention) {  // all of a head is of unturned parts
    parts.heads *= queries.head_dim / table->unturned_dim();
    parts.head_dim = table->unturned_dim();
  }
  backend_.rope({.x = parts,
                 .positions = batch().positions[static_cast<size_t>(own().rope)],
                 .cos = table->growth_cos(),
                 .sin = table->growth_sin(),
                 .rotary_dim = table->unturned_dim()});
}

void quantize_query(Backend& backend, const StoreKvArgs& args) {
  KVCAL_CHECK(args.x.row_stride == args.x.heads * args.x.head_dim);
  KVCAL_CHECK(is_fp8(args.dtype));
  backend.store_kv(args);
  backend.load_kv({.x = args.out,
                   .dtype = args.dtype,
                   .scales = args.scales,
                   .rows = args.x.tokens,
                   .heads = args.x.heads,
                   .head_dim = args.x.head_dim,
                   .out = args.x.data});
}

void Attention::run(const float* hidden, const KvView& storage, const ObservedQueries& seen) {
  make_query(seen, turns_in_attention(storage, seen));
  if (storage.q_scales) {
    buffers_.reserve(Reserved::kQuantizedQueries, rows());
    quantize_query(backend_, {.x = query_view(),
                              .dtype = storage.q_dtype,
                              .scales = storage.q_scales,
                              .out = buffers_.query_codes.data(),
                              .saturated = storage.q_saturated});
  }
  read(storage, select_keys(hidden, storage));
  if (layer().query_gate.matrix) gate_attended();
  if (layer().attended_norm.exists()) normalize_attended();
  observe(Role::kOutput, buffers_.attended, own().attention.attended_width());
}

void Attention::read(const KvView& storage, const KeySelection& selection) {
  const std::span<const Segment> all = batch().segments;
  if (own().chunk > 0) {
    KVCAL_CHECK(!batch().current_segments);  // their lengths change with each recorded step
    return read(storage, segments_in_chunks(all, own().chunk));
  }
  if (sees_images_whole()) {
    const ImageSegments split = split_at_images(batch(), own().sliding_window);
    if (!split.text.empty()) read(storage, split.text);
    if (!split.images.empty()) read(storage, split.images, {}, /*window=*/0);
    return;
  }
  if (!config_.architecture->has_latent_attention)
    return read(ExpandedLatent{.storage = storage, .segments = {all.begin(), all.end()}},
                selection);
  // Sequences of a cache one by one: expanded together they would need many times its memory.
  const size_t together = batch().slots.size() > 1 ? 1 : all.size();
  for (size_t i = 0; i < all.size(); i += together)
    read(expand(layer(), all.subspan(i, together), storage), selection);
}

void Attention::read(const ExpandedLatent& expanded, const KeySelection& selection) {
  if (!selection.words) return read(expanded.storage, expanded.segments);
  // Other segments get the bytes that they get without longer ones beside them.
  std::vector<Segment> selecting, others;
  for (const Segment& segment : expanded.segments)
    (config_.selects_keys(segment.kv_count) ? selecting : others).push_back(segment);
  if (!others.empty()) read(expanded.storage, others);
  if (!selecting.empty()) read(expanded.storage, selecting, selection);
}

void Attention::read(const KvView& kv, std::span<const Segment> segments,
                     const KeySelection& selection) {
  read(kv, segments, selection, own().sliding_window);
}

void Attention::read(const KvView& kv, std::span<const Segment> segments,
                     const KeySelection& selection, int64_t window) {
  const AttentionSizes& sizes = own().attention;
  // What is gated or normed stays in float32 until then.
  const bool is_made_later = layer().query_gate.matrix != nullptr || layer().attended_norm.exists();
  backend_.attention({.q = buffers_.query.as<float>(),
                      .q_row_stride = sizes.query_width(),
                      .rope = query_rope_,
                      .k = kv.k,
                      .v = kv.v,
                      .kv_dtype = kv.dtype,
                      .k_scales = kv.k_scales,
                      .v_scales = kv.v_scales,
                      .segments = segments,
                      .current_segments = batch().current_segments,
                      .heads = sizes.heads,
                      .kv_heads = sizes.kv_heads,
                      .head_dim = sizes.head_dim,
                      .v_head_dim = sizes.value_dim,
                      .softmax_scale = config_.softmax_scale * own().softmax_factor,
                      .softcap = config_.attention_softcap,
                      .sinks = layer().sinks.get(),
                      .slopes = layer().slopes.get(),
                      .sliding_window = window,
                      .selection = selection,
                      .relative = {.states = relative_view().data,
                                   .table = layer().relative_table.get(),
                                   .rank = config_.relative_rank,
                                   .extent = own().relative_extent},
                      .product_type = type_,
                      .out_type = is_made_later ? ComputeType::kFloat32 : type_,
                      .out = is_made_later ? buffers_.ungated.data() : buffers_.attended.data(),
                      .seen = is_made_later ? AmaxSlot{} : slot_of(Role::kOutput),
                      .weight_scale = kv.weight_scale,
                      .is_decoding = batch().is_decoding});
}

void Attention::normalize_attended() {
  KVCAL_CHECK(!layer().query_gate.matrix);
  backend_.norm({.x = buffers_.ungated.as<float>(),
                 .weight = layer().attended_norm.weight.get(),
                 .epsilon = config_.norm_eps,
                 .rows = rows(),
                 .width = own().attention.attended_width(),
                 .out_type = type_,
                 .out = buffers_.attended.data(),
                 .seen = slot_of(Role::kOutput)});
}

void Attention::gate_attended() {
  const AttentionSizes& sizes = own().attention;
  const PackedLinear& linear = layer().query_gate;
  project(buffers_.normed, linear, buffers_.query_gate);
  backend_.multiply_gate({.x = {buffers_.ungated.as<float>(), sizes.attended_width()},
                          .gate = {buffers_.query_gate.as<float>(), linear.matrix->out_features},
                          .gate_per_head = config_.gates_whole_heads,
                          .function = config_.architecture->has_softplus_gate
                                          ? GateFunction::kSoftplus
                                          : GateFunction::kSigmoid,
                          .rows = rows(),
                          .heads = sizes.heads,
                          .width = sizes.value_dim,
                          .out_type = type_,
                          .out = buffers_.attended.data(),
                          .seen = slot_of(Role::kOutput)});
}

ExpandedLatent Attention::expand(const PackedLayer& layer, std::span<const Segment> segments,
                                 const KvView& storage) {
  const LatentConfig& latent = own().latent;
  const int64_t heads = own().attention.heads, dim = own().attention.head_dim;
  const int64_t up_dim = latent.nope_dim + latent.value_dim;
  int64_t first = std::numeric_limits<int64_t>::max(), end = 0;
  for (const Segment& segment : segments) {
    first = std::min(first, segment.kv_begin);
    end = std::max(end, segment.kv_begin + segment.kv_count);
  }
  const int64_t rows = end - first;
  buffers_.reserve(Reserved::kReadRows, rows);

  const auto load = [&](const void* side, const float* scales, int64_t width, ComputeType type,
                        const Buffer& out) {
    const int64_t before = first * width * bytes_per_element(storage.dtype);
    backend_.load_kv({.x = static_cast<const std::byte*>(side) + before,
                      .dtype = storage.dtype,
                      .scales = scales,
                      .rows = rows,
                      .heads = 1,
                      .head_dim = width,
                      .out_type = type,
                      .out = out.data()});
  };
  load(storage.k, storage.k_scales, latent.latent_rank, type_, buffers_.latent);
  if (latent.rope_dim > 0)
    load(storage.v, storage.v_scales, latent.rope_dim, ComputeType::kFloat32, buffers_.rotated_key);
  fold(slot_of(Role::kLatentUp), buffers_.latent.data(), rows * latent.latent_rank, type_);
  observe({.role = Role::kLatentUp,
           .x = buffers_.latent.data(),
           .type = type_,
           .rows = rows,
           .width = latent.latent_rank});
  project(buffers_.latent.data(), layer.latent_up, rows, buffers_.expanded.as<float>());

  const auto heads_of = [rows](const Buffer& buffer, int64_t count, int64_t width) {
    return contiguous(buffer.as<float>(), rows, count, width);
  };
  const auto from = [](HeadsView view, int64_t first) {
    view.data += first;
    return view;
  };
  const HeadsView up = heads_of(buffers_.expanded, heads, up_dim);
  const HeadsView rotated = heads_of(buffers_.rotated_key, 1, latent.rope_dim);
  const HeadsView keys = heads_of(buffers_.keys, heads, dim);
  const HeadsView values = heads_of(buffers_.values, heads, latent.value_dim);
  backend_.copy_heads({.x = up, .out = keys, .width = latent.nope_dim});
  if (latent.rope_dim > 0)
    backend_.copy_heads(
        {.x = rotated, .out = from(keys, latent.nope_dim), .width = latent.rope_dim});
  backend_.copy_heads({.x = from(up, latent.nope_dim), .out = values, .width = latent.value_dim});
  ExpandedLatent expanded{.storage = {.k = buffers_.keys.data(), .v = buffers_.values.data()},
                          .segments = {segments.begin(), segments.end()}};
  for (Segment& segment : expanded.segments) segment.kv_begin -= first;
  return expanded;
}

}  // namespace kvcal
