#include "forward/compared_attention.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "forward/engine_cache.h"

namespace kvcal {
namespace {}  // namespace

uint64_t ComparedAttention::bytes(const ModelConfig& config, std::span<const int64_t> lengths) {
  const auto largest = [&](const auto& floats_of) {
    return static_cast<uint64_t>(config.largest(floats_of)) * sizeof(float);
  };
  // Rows of a cache: kept, and of one candidate its codes and what attention reads of them.
  const uint64_t row = largest([](const LayerConfig& layer) { return layer.cache.width(); });
  const uint64_t query = largest([&](const LayerConfig& layer) {
    return layer.attention.query_width() + 2 * layer.attention.attended_width() +
           config.relative_rank * layer.attention.heads;
  });
  const uint64_t weight = largest([](const LayerConfig& layer) { return layer.attention.heads; });
  uint64_t keys = 0, longest = 0, queries = 0;
  for (const int64_t length : lengths) {
    keys += static_cast<uint64_t>(length);
    longest = std::max(longest, static_cast<uint64_t>(length));
    queries += static_cast<uint64_t>(std::min(length, kComparedQueries));
  }
  // Weights lie in the backend and, of two candidates, on the host.
  return row * (keys + 2 * longest) + query * queries + 3 * kComparedQueries * weight * longest;
}

void ComparedAttention::begin_layer(int64_t layer) {
  layer_ = layer;
  for (ReferenceInputs& kept : samples_) kept.queries.clear();
}

std::vector<int64_t> ComparedAttention::chosen_queries(int64_t tokens) const {
  // An indexer selects among more keys than its topk, which only attention itself reads.
  if (config_.layer(layer_).reads_selected) tokens = std::min(tokens, config_.indexer.topk);
  const int64_t count = std::min(tokens, kComparedQueries);
  std::vector<int64_t> chosen;
  for (int64_t i = 1; i <= count; ++i) chosen.push_back(i * tokens / count - 1);
  return chosen;
}

KeySpan ComparedAttention::seen_by(int64_t query, const EmbeddedTokens* images) const {
  const LayerConfig& layer = config_.layer(layer_);
  int64_t begin = 0;
  if (layer.sliding_window > 0) begin = std::max<int64_t>(0, query - layer.sliding_window + 1);
  if (layer.chunk > 0) begin = std::max(begin, query / layer.chunk * layer.chunk);
  const bool sees_ahead = images && layer.sees_images_whole;
  return {begin, (sees_ahead ? images->last_of_image(query) : query) + 1};
}

void ComparedAttention::keep_keys(int64_t first_sample, const TokenBatch& tokens,
                                  const KeysValues& made) {
  for (size_t i = 0; i < tokens.segments.size(); ++i) {
    const Segment& segment = tokens.segments[i];
    const auto sample = static_cast<size_t>(first_sample++);
    if (sample >= samples_.size()) return;
    ReferenceInputs& kept = samples_[sample];
    kept.queries = chosen_queries(segment.q_count);
    if (kept.queries.empty()) continue;
    kept.seen.clear();
    kept.keys = 0;
    for (const int64_t query : kept.queries) {
      kept.seen.push_back(seen_by(query, tokens.embedded_of(i)));
      kept.keys = std::max(kept.keys, kept.seen.back().end);
    }
    const auto copy = [&](const HeadsView& heads, Buffer& to) {
      if (heads.head_dim == 0) return;
      float* room = grown<float>(backend_, to, kept.keys * heads.heads * heads.head_dim);
      const auto out = contiguous(room, kept.keys, heads.heads, heads.head_dim);
      backend_.copy_heads(
          {.x = part_of(heads, segment.q_begin, kept.keys), .out = out, .width = heads.head_dim});
      if (made.rope.x.data && made.rope.x.data == heads.data)
        backend_.rope(part_of(made.rope, out, segment.q_begin));
    };
    copy(made.k, kept.k);
    copy(made.v, kept.v);
  }
}

void ComparedAttention::keep_queries(int64_t first_sample, std::span<const Segment> segments,
                                     const HeadsView& q, const HeadsView& relative) {
  for (const Segment& segment : segments) {
    const auto sample = static_cast<size_t>(first_sample++);
    if (sample >= samples_.size()) return;
    ReferenceInputs& kept = samples_[sample];
    if (kept.queries.empty()) continue;
    const int64_t count = std::ssize(kept.queries);
    const auto copy = [&](const HeadsView& heads, Buffer& to) {
      float* room = grown<float>(backend_, to, count * heads.heads * heads.head_dim);
      const auto out = contiguous(room, count, heads.heads, heads.head_dim);
      for (int64_t i = 0; i < count; ++i)
        backend_.copy_heads(
            {.x = part_of(heads, segment.q_begin + kept.queries[static_cast<size_t>(i)], 1),
             .out = part_of(out, i, 1),
             .width = heads.head_dim});
    };
    copy(q, kept.q);
    if (relative.data) copy(relative, kept.relative);
  }
}

ComparedAttention::Read ComparedAttention::read(Attention& attention, const PackedLayer& layer,
                                                const ReferenceInputs& kept,
                                                const KvView& storage) {
  if (config_.architecture->has_latent_attention) {
    const Segment all{.q_begin = 0, .q_count = kept.keys, .kv_begin = 0, .kv_count = kept.keys};
    const ExpandedLatent expanded = attention.expand(layer, {&all, 1}, storage);
    return {static_cast<const float*>(expanded.storage.k),
            static_cast<const float*>(expanded.storage.v)};
  }
  if (storage.dtype == KvDType::kFloat32)
    return {static_cast<const float*>(storage.k), static_cast<const float*>(storage.v)};
  const LayerCache& cache = config_.cache(layer_);
  const auto load = [&](const void* codes, const float* scales, int64_t width, Buffer& to) {
    float* out = grown<float>(backend_, to, kept.keys * cache.heads * width);
    backend_.load_kv({.x = codes,
                      .dtype = storage.dtype,
                      .scales = scales,
                      .rows = kept.keys,
                      .heads = cache.heads,
                      .head_dim = width,
                      .out = out});
    return out;
  };
  return {load(storage.k, storage.k_scales, cache.k_dim, k_read_),
          load(storage.v, storage.v_scales, cache.v_dim, v_read_)};
}

ComparedAttention::Read ComparedAttention::read_quantized(Attention& attention,
                                                          const PackedLayer& layer,
                                                          const ReferenceInputs& kept,
                                                          const KvQuantization& candidate) {
  const LayerCache& cache = config_.cache(layer_);
  const auto store = [&](const Buffer& from, int64_t width, const std::vector<float>& scales,
                         bool is_value, Buffer& own_scales, Buffer& to) {
    const bool is_per_channel = candidate.type.format && std::ssize(scales) == cache.heads * width;
    KVCAL_CHECK(is_per_channel || std::ssize(scales) == cache.heads);
    own_scales = upload<float>(scales, backend_);
    if (width == 0) return;
    // Buffers only grow: fresh memory for each layer would cost more than the comparison.
    const KvDType dtype = candidate.type.dtype;
    const int64_t bytes = kept.keys * cache.heads * width * bytes_per_element(dtype);
    std::byte* out = grown<std::byte>(backend_, to, bytes);
    backend_.store_kv({.x = contiguous(from.as<float>(), kept.keys, cache.heads, width),
                       .dtype = dtype,
                       .scales = own_scales.as<float>(),
                       .out = out});
    if (!candidate.type.format) return;
    backend_.simulate_cache(
        {.x = contiguous(reinterpret_cast<float*>(out), kept.keys, cache.heads, width),
         .format = *candidate.type.format,
         .scales = own_scales.as<float>(),
         .scale_per_channel = is_per_channel,
         .is_value = is_value,
         .rotated = cached_sizes(config_, layer_).rotated});
  };
  store(kept.k, cache.k_dim, candidate.k_scales, false, k_scales_, k_codes_);
  store(kept.v, cache.v_dim, candidate.v_scales, true, v_scales_, v_codes_);
  return read(attention, layer, kept,
              {.dtype = candidate.type.dtype,
               .k = k_codes_.data(),
               .v = v_codes_.data(),
               .k_scales = k_scales_.as<float>(),
               .v_scales = v_scales_.as<float>()});
}

ComparedAttention::Attended ComparedAttention::attend(const PackedLayer& layer,
                                                      const ReferenceInputs& kept,
                                                      const Read& read) {
  const AttentionSizes& sizes = config_.attention(layer_);
  const int64_t rows = std::ssize(kept.seen) * sizes.heads;
  const int64_t stride = kept.keys + (layer.sinks.exists() ? 1 : 0);
  float* logs = grown<float>(backend_, logs_, rows * stride);
  float* out = grown<float>(backend_, out_, rows * sizes.value_dim);
  backend_.attention_weights(
      {.q = kept.q.as<float>(),
       .k = read.k,
       .v = read.v,
       .seen = kept.seen,
       .heads = sizes.heads,
       .kv_heads = sizes.kv_heads,
       .head_dim = sizes.head_dim,
       .v_head_dim = sizes.value_dim,
       .softmax_scale = config_.softmax_scale * config_.layer(layer_).softmax_factor,
       .softcap = config_.attention_softcap,
       .sinks = layer.sinks.get(),
       .slopes = layer.slopes.get(),
       .relative = {.states = layer.relative.matrix ? kept.relative.as<float>() : nullptr,
                    .table = layer.relative_table.get(),
                    .rank = config_.relative_rank,
                    .extent = config_.layer(layer_).relative_extent},
       .weights_stride = stride,
       .log_weights = logs,
       .out = out});
  return {downloaded(backend_, logs, rows * stride),
          downloaded(backend_, out, rows * sizes.value_dim)};
}

std::vector<AttentionError> ComparedAttention::errors(const ReferenceInputs& kept,
                                                      const Attended& exact,
                                                      const Attended& other) const {
  const AttentionSizes& sizes = config_.attention(layer_);
  const size_t heads = static_cast<size_t>(sizes.heads), dim = static_cast<size_t>(sizes.value_dim);
  const size_t stride = exact.logs.size() / (kept.queries.size() * heads);
  const size_t sinks = stride - static_cast<size_t>(kept.keys);
  std::vector<AttentionError> errors(heads);
  for (size_t query = 0; query < kept.queries.size(); ++query) {
    const KeySpan& seen = kept.seen[query];
    const size_t count = static_cast<size_t>(seen.end - seen.begin) + sinks;
    for (size_t head = 0; head < heads; ++head) {
      const size_t row = query * heads + head;
      AttentionError own{.queries = 1};
      for (size_t i = row * stride; i < row * stride + count; ++i)
        own.kl += double{std::exp(exact.logs[i])} * (double{exact.logs[i]} - double{other.logs[i]});
      for (size_t i = row * dim; i < (row + 1) * dim; ++i) {
        const double distance = double{other.out[i]} - double{exact.out[i]};
        own.error += distance * distance;
        own.output += double{exact.out[i]} * double{exact.out[i]};
      }
      errors[head].add(own);
    }
  }
  return errors;
}

AttentionComparison ComparedAttention::compare(Attention& attention, const PackedLayer& layer,
                                               std::span<const KvQuantization> candidates) {
  const auto heads = static_cast<size_t>(config_.attention(layer_).heads);
  AttentionComparison comparison;
  for (const ReferenceInputs& kept : samples_) {
    auto& errors_of = comparison.samples.emplace_back(
        candidates.size(), std::vector<AttentionError>(heads));  // zeros where no token ran
    if (kept.queries.empty()) continue;
    const KvView unquantized{.k = kept.k.data(), .v = kept.v.data()};
    const Attended exact = attend(layer, kept, read(attention, layer, kept, unquantized));
    for (size_t i = 0; i < candidates.size(); ++i)
      errors_of[i] = errors(
          kept, exact, attend(layer, kept, read_quantized(attention, layer, kept, candidates[i])));
  }
  return comparison;
}

}  // namespace kvcal
