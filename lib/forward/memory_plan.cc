#include "forward/memory_plan.h"

#include <algorithm>

#include "core/byte_units.h"
#include "family/architecture.h"
#include "forward/compared_attention.h"
#include "forward/layer_context.h"
#include "forward/layer_observers.h"
#include "forward/layer_prefetch.h"
#include "forward/token_batch.h"
#include "quant/observations.h"

namespace kvcal {
namespace {

int64_t longest_of(std::span<const int64_t> lengths) {
  return lengths.empty() ? 0 : std::ranges::max(lengths);
}

int64_t attention_elements(const ModelConfig& config, const LayerConfig& layer) {
  const AttentionSizes& sizes = layer.attention;
  const int64_t hidden = config.hidden_size, gates = config.architecture->has_query_gate ? 1 : 0;
  const int64_t outer = hidden * ((1 + gates) * sizes.query_width() + sizes.attended_width() +
                                  config.relative_rank * sizes.heads);
  const IndexerConfig& indexer = config.indexer;
  if (!config.architecture->has_latent_attention)
    return outer +
           (sizes.key_width() + sizes.value_width() + indexer.query_width() + indexer.head_dim) *
               hidden;
  const LatentConfig& latent = layer.latent;
  return outer + latent.width() * hidden + latent.up_width(sizes.heads) * latent.latent_rank +
         indexer.query_width() * latent.query_rank +
         (indexer.head_dim + 2 * indexer.heads) * hidden;
}

int64_t recurrence_elements(const ModelConfig& config) {
  if (config.architecture->recurrence == Mixer::kNone) return 0;
  const int64_t inner = config.recurrent.inner();
  return config.hidden_size *
             (config.size_of(Dim::kMixerInWidth) + config.size_of(Dim::kMixerGatesWidth) + inner) +
         inner * (config.size_of(Dim::kMixerStatesWidth) + config.recurrent.step_rank) +
         inner * config.recurrent.gate_rank +
         config.recurrent.keys() * config.recurrent.decay_rank +
         (config.recurrent.fades_by_key ? config.recurrent.keys() * config.hidden_size : 0);
}

/// Hyper-connections of a layer's attention and MLP.
uint64_t connection_bytes(const ModelConfig& config) {
  if (!config.connections.exist()) return 0;
  const int64_t matrix = config.size_of(Dim::kConnections) * config.size_of(Dim::kStreamsWidth);
  return static_cast<uint64_t>(2 * (matrix + config.size_of(Dim::kStreamsWidth))) * sizeof(float);
}

/// Storage of K and V, and what the passes keep beside the runner's activations.
uint64_t cached_bytes_per_token(const ModelConfig& config) {
  const auto width = [](const LayerConfig& layer) { return layer.cache.width(); };
  uint64_t floats = static_cast<uint64_t>(config.largest(width));
  // Embeddings of the batch, and of the layer.
  if (config.has_layer_inputs)
    floats += static_cast<uint64_t>(config.hidden_size + config.layer_input_size);
  // Rows of the table, and the projection's input.
  if (config.projects_embedding) floats += static_cast<uint64_t>(2 * config.embedding_size);
  // Embeddings of n-grams, and their stored rows on the host.
  floats += static_cast<uint64_t>(2 * config.ngrams.width);
  // What the shares of streams are multiples of.
  if (config.mixes_streams()) floats += static_cast<uint64_t>(config.streams);
  // The draft layer's input.
  if (config.has_draft()) floats += static_cast<uint64_t>(6 * config.hidden_size);
  return floats * sizeof(float);
}

/// Scratch memory of attention for a row of K and V.
uint64_t attention_bytes_per_token(const ModelConfig& config, const Backend& backend,
                                   ComputeType type) {
  uint64_t most = 0;
  for (const LayerConfig& layer : config.layers)
    most = std::max(most, backend.attention_bytes_per_key({.segments = {},
                                                           .kv_heads = layer.attention.kv_heads,
                                                           .head_dim = layer.attention.head_dim,
                                                           .v_head_dim = layer.attention.value_dim,
                                                           .product_type = type}));
  return most;
}

/// The selection of keys of sparse attention, and its scratch memory, for a token of a batch.
uint64_t selection_bytes_per_token(const ModelConfig& config, const Backend& backend,
                                   int64_t longest) {
  if (!config.selects_keys(longest)) return 0;
  const IndexerConfig& indexer = config.indexer;
  // Keys of blocks with their positions, and the rows that they are the means of.
  const int64_t of_blocks =
      config.architecture->indexer == Indexer::kBlocks ? 2 + indexer.head_dim / indexer.block : 0;
  return static_cast<uint64_t>(KeySelection::words_of(longest) + of_blocks) * sizeof(uint32_t) +
         backend.selection_bytes_per_key();
}

/// cos and sin for the longest sequence of each block and for places of images, for keys and
/// queries.
uint64_t rope_bytes(const RopeConfig& rope, std::span<const int64_t> lengths, int64_t places) {
  int64_t rows = places;
  for (const auto& [block, longest] : rope_rows(rope, lengths)) rows += longest;
  return static_cast<uint64_t>(rows * rope.rotary_dim) * sizeof(float) *
         (rope.query_beta == 0.0 ? 1 : 2);
}

/// Of the channels of a layer's K or V, and of the rows of K that are kept of each sample.
uint64_t channel_bytes(const ModelConfig& config, size_t samples, int64_t key_rows) {
  const int64_t channels = config.largest([](const LayerConfig& layer) {
    return layer.cache.heads * std::max(layer.cache.k_dim, layer.cache.v_dim);
  });
  const uint64_t rows = static_cast<uint64_t>(key_rows) * sizeof(float);
  return static_cast<uint64_t>(channels) * 2 * samples * (sizeof(ObservedRange) + rows);
}

/// Ranges and histograms, in the backend and on the host.
uint64_t observed_bytes(const ModelConfig& config, const ObservationRequest& request,
                        std::span<const int64_t> lengths,
                        std::span<const EmbeddedTokens* const> embedded) {
  uint64_t pieces = 0;  // of K and V, as PositionPieces cuts them
  for (const int64_t length : lengths) pieces += position_bucket(length - 1) + 1;
  for (const EmbeddedTokens* images : embedded)
    if (images) pieces += 2 * runs_of(*images).size();
  const auto bytes_of = [](int64_t heads, uint64_t rows) {
    return 2 * static_cast<uint64_t>(heads) *
           (rows * sizeof(ObservedRange) + sizeof(MagnitudeHistogram));
  };
  const int64_t kv_heads =
      config.largest([](const LayerConfig& layer) { return layer.cache.heads; });
  const int64_t heads =
      config.largest([](const LayerConfig& layer) { return layer.attention.heads; });
  return bytes_of(2 * kv_heads, pieces) + bytes_of(request.query ? heads : 0, lengths.size()) +
         LinearCollector::bytes(config, request.linears, lengths.size()) +
         (request.channels || request.channel_ranges
              ? channel_bytes(config, lengths.size(), request.key_rows)
              : 0) +
         ComparedAttention::bytes(
             config,
             lengths.first(std::min<size_t>(
                 lengths.size(), static_cast<size_t>(request.compared_samples.value_or(0)))));
}

uint64_t table_bytes(const ModelConfig& config, const LayerwiseOptions& options,
                     std::span<const int64_t> lengths) {
  const int64_t places = std::ssize(places_of(options.embedded));
  uint64_t tokens = 0, bytes = 0;
  for (const int64_t length : lengths) tokens += static_cast<uint64_t>(length);
  for (const RopeConfig& rope : config.ropes)
    bytes += rope_bytes(rope, lengths, places) + tokens * sizeof(int32_t);
  return bytes + observed_bytes(config, options.observation, lengths, options.embedded);
}

}  // namespace

uint64_t packed_layer_bytes(const ModelConfig& config, ComputeType type) {
  const int64_t hidden = config.hidden_size;
  const int64_t mixer = config.largest([&](const LayerConfig& layer) {
    return (layer.has_attention ? attention_elements(config, layer) : 0) +
           (layer.has_recurrence ? recurrence_elements(config) : 0);
  });
  const int64_t dense = 3 * hidden * config.largest(&LayerConfig::intermediate_size);
  const MoeConfig& moe = config.moe;
  const int64_t experts =
      3 * config.size_of(Dim::kExpertWidth) * moe.num_experts * moe.intermediate_size +
      hidden * (3 * std::max<int64_t>(moe.scored_shared, 1) * moe.shared_intermediate_size +
                2 * moe.latent_size);
  const auto is_moe = [](const LayerConfig& layer) { return layer.is_moe; };
  int64_t largest = std::ranges::all_of(config.layers, is_moe) ? 0 : dense;
  if (std::ranges::any_of(config.layers, is_moe)) largest = std::max(largest, experts);
  if (config.architecture->has_mlp_beside_experts) largest = dense + experts;
  largest += hidden * (3 * config.layer_input_size + 2 * config.laurel_rank);
  // Layer 0 has the projections to the further streams, and the last one those back; gates of a low
  // rank are before attention, before the MLP, and behind the last layer.
  if (config.mixes_streams())
    largest += config.streams * hidden * (6 * config.stream_mix_rank + 2 * config.streams);
  else if (!config.connections.exist() && !config.attends_residuals)
    largest += 2 * hidden * hidden * (config.streams - 1);
  largest += hidden * (config.streams + 1) * config.ngrams.width;
  return static_cast<uint64_t>(mixer + largest) * bytes_of(type) + connection_bytes(config);
}

MemoryNeeds memory_needs(const ModelConfig& config, const Weights& weights, const Backend& backend,
                         const LayerwiseOptions& options, std::span<const int64_t> sample_lengths) {
  const ComputeType type = options.compute_type;
  MemoryNeeds needs;
  needs.layers =
      packed_layer_bytes(config, type) * static_cast<uint64_t>(LayerPrefetch::layers_held(backend));
  const int64_t longest = longest_of(sample_lengths);
  needs.per_token = Activations::bytes_per_token(config, backend, type,
                                                 {.quantizes_queries = options.observation.query,
                                                  .selects_keys = config.selects_keys(longest)}) +
                    cached_bytes_per_token(config) +
                    attention_bytes_per_token(config, backend, type) +
                    selection_bytes_per_token(config, backend, longest);
  if (!backend.is_host()) return needs;
  needs.process = options.process_bytes;
  needs.packing = 2 * weights.largest_read_bytes(backend);  // gate and up go together
  needs.tables = table_bytes(config, options, sample_lengths);
  // With shown hidden states, two more batches may wait for the writer.
  const uint64_t batches = options.shows_hidden ? 3 : 1;
  const int64_t carried = config.carried_width(std::max(longest, options.longest_sample));
  needs.per_token += batches * static_cast<uint64_t>(carried) * sizeof(float);
  return needs;
}

MemoryPlan::MemoryPlan(const ModelConfig& config, const Weights& weights, const Backend& backend,
                       const LayerwiseOptions& options, std::span<const int64_t> sample_lengths)
    : needs_(memory_needs(config, weights, backend, options, sample_lengths)),
      limit_(options.memory_limit) {
  if (!limit_ && backend.is_host() && options.process_can_take) {
    limit_ = options.process_can_take;
    is_limit_found_ = true;
  }
  if (const std::optional<uint64_t> free = backend.free_memory()) {
    // Reserve for libraries and fragmentation.
    const uint64_t usable = *free - *free / 16;
    is_limit_found_ = !limit_ || usable < *limit_;
    limit_ = std::min(limit_.value_or(usable), usable);
  }
  const int64_t longest = longest_of(sample_lengths);
  const auto activations =
      static_cast<int64_t>(Activations::bytes_per_token(config, backend, options.compute_type));
  const int64_t preferred =
      options.batch_tokens > 0 ? options.batch_tokens : backend.preferred_batch_tokens(activations);
  batch_tokens_ = std::max(preferred, longest);
  if (!limit_) return;
  const uint64_t least = needs_.with_batch(longest);
  if (least > *limit_) {
    const char* what = !is_limit_found_    ? "the memory limit of "
                       : backend.is_host() ? "the available memory of "
                                           : "the device's free memory of ";
    const char* layers = backend.packs_beside() ? "two layers" : "one layer";
    fail(what, limit_text(*limit_), " cannot hold ", backend.is_host() ? "the program, " : "",
         layers, " and the longest sample of ", counted(longest, "token"), ", which take ",
         byte_text_beside(*limit_, least));
  }
  // Half of the remaining memory is for hidden states.
  const uint64_t room = (*limit_ - needs_.with_batch(0)) / 2 / needs_.per_token;
  batch_tokens_ = std::clamp(static_cast<int64_t>(room), longest, batch_tokens_);
}

std::optional<uint64_t> MemoryPlan::hidden_bytes(int64_t longest_batch) const {
  if (!limit_) return std::nullopt;
  return *limit_ - std::min(*limit_, needs_.with_batch(longest_batch));
}

std::optional<uint64_t> MemoryPlan::room_beside(int64_t longest_batch, int64_t hidden_floats,
                                                bool are_held) const {
  const std::optional<uint64_t> room = hidden_bytes(longest_batch);
  if (!room) return std::nullopt;
  const uint64_t held = static_cast<uint64_t>(hidden_floats) * sizeof(float);
  return are_held ? *room - std::min(*room, held) : 0;
}

uint64_t MemoryPlan::room_before_layers(int64_t longest_batch, int64_t hidden_floats,
                                        bool are_held) const {
  return needs_.layers + room_beside(longest_batch, hidden_floats, are_held).value_or(0);
}

}  // namespace kvcal
