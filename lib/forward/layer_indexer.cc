// Sparse attention of LayerRunner: an indexer selects the keys that each query reads. Source:
// transformers 5.23, models/deepseek_v32 and models/glm_moe_dsa.
#include <algorithm>

#include "forward/layer_runner.h"

namespace kvcal {
namespace {

/// Fixed in the published code.
constexpr float kIndexerNormEpsilon = 1e-6f;

int64_t most_keys(std::span<const Segment> segments) {
  int64_t most = 0;
  for (const Segment& segment : segments) most = std::max(most, segment.kv_count);
  return most;
}

}  // namespace

RopeArgs LayerRunner::indexer_rope(float* data, int64_t heads, int64_t layer_index,
                                   const TokenBatch& batch, const RopeTables& ropes) const {
  const int64_t dim = config_.indexer.head_dim;
  RopeArgs rope = rope_of({.data = data,
                           .tokens = batch.num_tokens,
                           .heads = heads,
                           .head_dim = dim,
                           .row_stride = heads * dim},
                          layer_index, batch, ropes, false);
  rope.interleaved = config_.indexer.rope_is_interleaved;
  return rope;
}

const float* LayerRunner::index_keys(const PackedIndexer& indexer, int64_t layer_index,
                                     const TokenBatch& batch, const RopeTables& ropes,
                                     const KvStorage& storage) {
  const int64_t dim = config_.indexer.head_dim;
  const Segment whole{.q_begin = 0, .q_count = batch.num_tokens, .kv_count = batch.num_tokens};
  const bool is_kept = storage.indexer_keys != nullptr;
  float* keys = is_kept ? storage.indexer_keys : buffers_.indexer_keys.as<float>();
  project(buffers_.normed, indexer.key, batch.num_tokens, buffers_.indexer_key);
  for (const Segment& segment : is_kept ? batch.segments : std::vector<Segment>{whole}) {
    float* rows = keys + (segment.kv_begin + segment.kv_count - segment.q_count) * dim;
    backend_.norm({.x = buffers_.indexer_key.as<float>() + segment.q_begin * dim,
                   .weight = indexer.key_norm.weight.get(),
                   .bias = indexer.key_norm.bias.get(),
                   .centered = true,
                   .epsilon = kIndexerNormEpsilon,
                   .rows = segment.q_count,
                   .width = dim,
                   .out = rows});
    RopeArgs rope = indexer_rope(rows, 1, layer_index, batch, ropes);
    if (!rope.x.data) continue;
    rope.x.tokens = segment.q_count;
    rope.positions += segment.q_begin;
    backend_.rope(rope);
  }
  return keys;
}

KeySelection LayerRunner::select_keys(const PackedLayer& layer, int64_t layer_index,
                                      const float* hidden, const TokenBatch& batch,
                                      const RopeTables& ropes, const KvStorage& storage) {
  const IndexerConfig& config = config_.indexer;
  const int64_t tokens = batch.num_tokens, keys = most_keys(batch.segments);
  const bool is_selecting = config_.selects_keys(keys);
  if (!is_selecting && !storage.indexer_keys) return {};
  KeySelection selection{.words = storage.selection, .row_words = storage.selection_words};
  if (!storage.selection) selection.row_words = KeySelection::words_of(keys);
  const size_t bytes = static_cast<size_t>(tokens * selection.row_words) * sizeof(uint32_t);
  if (config_.layer(layer_index).has_indexer) {
    buffers_.reserve(Reserved::kIndexed, tokens);
    const float* scored = index_keys(layer.indexer, layer_index, batch, ropes, storage);
    if (!is_selecting) return {};
    if (!storage.selection && selection_.size() != bytes) selection_ = backend_.allocate(bytes);
    project(buffers_.query_normed, layer.indexer.query, tokens, buffers_.indexer_query);
    const RopeArgs rope =
        indexer_rope(buffers_.indexer_query.as<float>(), config.heads, layer_index, batch, ropes);
    if (rope.x.data) backend_.rope(rope);
    normalize(hidden, layer.input_norm, tokens, ComputeType::kFloat32,
              buffers_.indexer_input.data(), {});
    project(buffers_.indexer_input, layer.indexer.weights, tokens, buffers_.indexer_weights);
    backend_.select_keys({.q = buffers_.indexer_query.as<float>(),
                          .weights = buffers_.indexer_weights.as<float>(),
                          .k = scored,
                          .segments = batch.segments,
                          .heads = config.heads,
                          .head_dim = config.head_dim,
                          .topk = config.topk,
                          .out = storage.selection ? storage.selection : selection_.as<uint32_t>(),
                          .row_words = selection.row_words});
  }
  if (!is_selecting) return {};
  if (!storage.selection) {
    KVCAL_CHECK(selection_.size() == bytes);
    selection.words = selection_.as<uint32_t>();
  }
  return selection;
}

void LayerRunner::attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                         const ExpandedLatent& expanded, const KeySelection& selection) {
  if (!selection.words)
    return attend(layer, layer_index, batch, expanded.storage, expanded.segments);
  // Other segments get the bytes that they get without longer ones beside them.
  std::vector<Segment> selecting, others;
  for (const Segment& segment : expanded.segments)
    (config_.selects_keys(segment.kv_count) ? selecting : others).push_back(segment);
  if (!others.empty()) attend(layer, layer_index, batch, expanded.storage, others);
  if (!selecting.empty()) attend(layer, layer_index, batch, expanded.storage, selecting, selection);
}

Buffer LayerRunner::copy_of_selection() {
  const auto floats = static_cast<int64_t>(selection_.size() / sizeof(float));
  if (floats == 0) return {};
  Buffer copy = backend_.allocate(selection_.size());
  const auto view = [&](const Buffer& buffer) {
    return HeadsView{buffer.as<float>(), 1, 1, floats, floats};
  };
  backend_.copy_heads({.x = view(selection_), .out = view(copy), .width = floats});
  return copy;
}

}  // namespace kvcal
