// The indexer of sparse attention: its keys and queries, and the keys that it selects.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "forward/attention.h"

namespace kvcal {
namespace {

/// Fixed in the published code of indexers, independent of rms_norm_eps.
constexpr float kIndexerNormEpsilon = 1e-6f;

}  // namespace

RopeArgs Attention::indexer_rope(float* data, int64_t heads) const {
  const int64_t dim = config_.indexer.head_dim;
  RopeArgs rope = rope_of(contiguous(data, rows(), heads, dim), false);
  rope.interleaved = config_.indexer.rope_is_interleaved;
  return rope;
}

const float* Attention::index_keys(const KvView& storage) {
  const int64_t dim = config_.indexer.head_dim;
  const Segment whole{.q_begin = 0, .q_count = rows(), .kv_count = rows()};
  const bool is_kept = storage.indexer_keys != nullptr;
  float* keys = is_kept ? storage.indexer_keys : buffers_.indexer_keys.as<float>();
  project(buffers_.normed, layer().indexer.key, buffers_.indexer_key);
  for (const Segment& segment : is_kept ? batch().segments : std::vector<Segment>{whole}) {
    float* rows = keys + (segment.kv_begin + segment.kv_count - segment.q_count) * dim;
    const float* made = buffers_.indexer_key.as<float>() + segment.q_begin * dim;
    if (!selects_blocks())
      finish_index_keys(segment, made, rows);
    else
      backend_.copy_heads({.x = contiguous(const_cast<float*>(made), segment.q_count, 1, dim),
                           .out = contiguous(rows, segment.q_count, 1, dim),
                           .width = dim});
  }
  return keys;
}

void Attention::finish_index_keys(const Segment& segment, const float* made, float* rows) {
  const PackedNorm& norm = layer().indexer.key_norm;
  backend_.norm({.x = made,
                 .weight = norm.weight.get(),
                 .bias = norm.bias.get(),
                 .centered = true,
                 .epsilon = kIndexerNormEpsilon,
                 .rows = segment.q_count,
                 .width = config_.indexer.head_dim,
                 .out = rows});
  const RopeArgs rope = indexer_rope(rows, 1);
  if (rope.x.data)
    backend_.rope(part_of(rope, part_of(rope.x, 0, segment.q_count), segment.q_begin));
}

std::vector<Segment> Attention::make_block_keys(const float* keys) {
  const int64_t size = config_.indexer.block, dim = config_.indexer.head_dim;
  std::vector<Segment> segments = batch().segments;
  std::vector<int32_t> rows, positions;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t first = std::exchange(segments[i].kv_begin, std::ssize(positions));
    for (int64_t key = 0; key + size <= segments[i].kv_count; key += size) {
      for (int64_t j = key; j < key + size; ++j) rows.push_back(static_cast<int32_t>(first + j));
      positions.push_back(rope_table() ? rope_table()->row(key, batch().whole_lengths[i]) : 0);
    }
  }
  const auto blocks = std::ssize(positions);
  float* const means = grown<float>(backend_, block_keys_, blocks * dim);
  // Rows of K are places of the sums' terms.
  const Buffer places = upload<int32_t>(rows, backend_);
  backend_.fill_zero(block_keys_.data(), static_cast<size_t>(blocks * dim) * sizeof(float));
  backend_.combine_rows({.x = keys,
                         .places = places.as<int32_t>(),
                         .count = *std::ranges::max_element(rows) + 1,
                         .rows = blocks,
                         .per_row = size,
                         .width = dim,
                         .out = means});
  const HeadsView view = contiguous(means, blocks, 1, dim);
  backend_.scale({.x = view, .factor = 1.0f / static_cast<float>(size)});
  backend_.norm_heads(
      {.x = view, .weight = layer().indexer.key_norm.weight.get(), .epsilon = config_.norm_eps});
  const Buffer at = upload<int32_t>(positions, backend_);
  RopeArgs rope = rope_of(view, false);
  rope.positions = at.as<int32_t>();
  if (rope.x.data) backend_.rope(rope);
  return segments;
}

void Attention::run_indexer(const float* hidden, const float* keys, const KeySelection& selection,
                            uint32_t* out) {
  const IndexerConfig& config = config_.indexer;
  const PackedIndexer& indexer = layer().indexer;
  const Buffer& input = config_.has_query_rank ? buffers_.query_normed : buffers_.normed;
  project(input, indexer.query, buffers_.indexer_query);
  const HeadsView queries =
      contiguous(buffers_.indexer_query.as<float>(), rows(), config.heads, config.head_dim);
  if (indexer.query_norm.exists())
    backend_.norm_heads(
        {.x = queries, .weight = indexer.query_norm.weight.get(), .epsilon = config_.norm_eps});
  const RopeArgs rope = indexer_rope(queries.data, config.heads);
  if (rope.x.data) backend_.rope(rope);
  if (indexer.weights.matrix) {
    normalize(hidden, layer().input_norm, ComputeType::kFloat32, buffers_.indexer_input.data());
    project(buffers_.indexer_input, indexer.weights, buffers_.indexer_weights);
  }
  const std::vector<Segment> segments = selects_blocks() ? make_block_keys(keys) : batch().segments;
  backend_.select_keys(
      {.q = queries.data,
       .weights = indexer.weights.matrix ? buffers_.indexer_weights.as<float>() : nullptr,
       .k = selects_blocks() ? block_keys_.as<float>() : keys,
       .segments = segments,
       .heads = config.heads,
       .head_dim = config.head_dim,
       .topk = config.topk / config.block,
       .block = config.block,
       .out = out,
       .row_words = selection.row_words});
}

KeySelection Attention::select_keys(const float* hidden, const KvView& storage) {
  if (!own().reads_selected) return {};
  int64_t most = 0;
  for (const Segment& segment : batch().segments) most = std::max(most, segment.kv_count);
  const bool is_selecting = config_.selects_keys(most);
  if (!is_selecting && !storage.indexer_keys) return {};
  KeySelection selection{.words = storage.selection, .row_words = storage.selection_words};
  if (!storage.selection) selection.row_words = KeySelection::words_of(most);
  const size_t bytes = static_cast<size_t>(rows() * selection.row_words) * sizeof(uint32_t);
  if (own().has_indexer) {
    buffers_.reserve(Reserved::kIndexed, rows());
    const float* keys = index_keys(storage);
    if (!is_selecting) return {};
    if (!storage.selection && selection_.size() != bytes) selection_ = backend_.allocate(bytes);
    run_indexer(hidden, keys, selection,
                storage.selection ? storage.selection : selection_.as<uint32_t>());
  }
  if (!is_selecting) return {};
  if (!storage.selection) {
    KVCAL_CHECK(selection_.size() == bytes);
    selection.words = selection_.as<uint32_t>();
  }
  return selection;
}

Buffer Attention::copy_of_selection() {
  const int64_t words = count_of<float>(selection_);
  if (words == 0) return {};
  Buffer copy = allocate<float>(backend_, words);
  const auto view = [&](const Buffer& buffer) {
    return contiguous(buffer.as<float>(), 1, 1, words);
  };
  backend_.copy_heads({.x = view(selection_), .out = view(copy), .width = words});
  return copy;
}

}  // namespace kvcal
