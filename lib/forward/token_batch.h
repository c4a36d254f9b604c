// The residual stream is float32 for every compute dtype: real models reach magnitudes that
// float16 cannot hold.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "backend/memory.h"
#include "core/embedded_tokens.h"
#include "core/number.h"
#include "family/model_config.h"

namespace kvcal {

class RopeTable;
/// The tables of all ropes of a model.
using RopeTables = std::vector<RopeTable>;

/// Tokens that go through a layer together: whole or continued sequences, packed without padding.
struct TokenBatch {
  int64_t num_tokens = 0;
  std::vector<Segment> segments;  ///< rows of this batch; kv rows of the storage attention reads
  const RopeTables* ropes = nullptr;
  std::vector<const int32_t*> positions;  ///< [num_tokens] rows of each rope's table
  std::vector<Buffer> owned_positions;    ///< storage of positions, where the batch owns them
  std::vector<int64_t> slots;             ///< of each segment in a KvCache, ascending; empty: 0
  /// [num_tokens], until they are embedded, or as long as layers have inputs of their own.
  std::vector<TokenId> ids;
  /// [segments, NgramConfig::history] tokens before those of the batch; empty: the segments begin
  /// their sequences.
  std::vector<TokenId> ids_before;
  std::vector<int64_t> whole_lengths;  ///< [segments] of the whole sequences, for RoPE
  /// [segments], null where all tokens are text; empty: they are in all. Borrowed.
  std::vector<const EmbeddedTokens*> embedded;
  /// One decoding step: rows may differ in the last bits from those of a larger batch.
  bool is_decoding = false;
  /// A decoding step whose products must not depend on the number of sequences.
  bool has_fixed_products = false;
  // For a recorded step, in backend memory and read at each replay: the current segments, and the
  // cache row of the token.
  const Segment* current_segments = nullptr;
  const int64_t* first_row = nullptr;

  /// Appends tokens of a sequence from a position on. The rows of the storage begin where theirs do
  /// in the batch, with those before the position.
  void append(std::span<const TokenId> tokens, int64_t position, int64_t whole_length);
  /// What the vision tower gave a segment, or null.
  const EmbeddedTokens* embedded_of(size_t segment) const {
    return embedded.empty() ? nullptr : embedded[segment];
  }
  /// Positions of the tokens in their sequences: [num_tokens].
  std::vector<int32_t> in_sequence() const;
  /// Uploads the rows of the tokens' positions in each table, which are borrowed.
  void upload_positions(const RopeTables& tables, Backend& backend);
};

/// Inputs of the next layers where they have inputs of their own, in backend memory: the embeddings
/// of the batch's tokens [tokens, hidden_size], embed_layer_input of the layer [tokens,
/// layer_input_size], and embed_ngrams of the layer [tokens, NgramConfig::width].
struct LayerInputs {
  const float* embedded = nullptr;
  const float* rows = nullptr;
  const float* ngrams = nullptr;
};

/// K and V of a batch before they enter the cache. For latent attention, "K" is the normed latent
/// and "V" the key to rotate, as in transformers.
struct KeysValues {
  HeadsView k, v;
  RopeArgs rope;  ///< of K, or of V for latent attention; x is null without rotation
  EnterCacheArgs entry() const { return {.k = {.x = k}, .v = {.x = v}, .rope = rope}; }
};

struct LayerStates;

/// K and V for attention, [rows, heads, k_dim or v_dim] of the layer's cache, and their scales per
/// head. q_scales: [num_attention_heads] of FP8 queries, or null.
struct KvView {
  KvDType dtype = KvDType::kFloat32;
  const void* k = nullptr;
  const void* v = nullptr;
  const float* k_scales = nullptr;
  const float* v_scales = nullptr;
  const float* q_scales = nullptr;
  KvDType q_dtype = KvDType::kFp8E4m3;  ///< of queries with scales
  uint64_t* q_saturated = nullptr;      ///< [num_attention_heads] counts to add to, or null
  float weight_scale = 0.0f;            ///< as AttentionArgs has it
  // Of sparse attention:
  float* indexer_keys = nullptr;  ///< [rows, index head_dim], to which the layer adds the batch's;
                                  ///< null: the rows are the batch's
  /// [tokens, row_words], which a layer with an indexer writes and other layers read; null: the
  /// runner's, for layers one after the other.
  uint32_t* selection = nullptr;
  int64_t selection_words = 0;
  /// States of the layer beside K and V; null: all sequences begin here.
  const LayerStates* states = nullptr;
};

/// K and V of all heads, expanded from the latent rows in segments.
struct ExpandedLatent {
  KvView storage;
  std::vector<Segment> segments;  ///< the input segments, with their rows of storage
};

/// Results of observing queries, as in ObserveKvArgs; null: not requested.
struct ObservedQueries {
  ObservedRange* ranges = nullptr;  ///< [samples of the batch, num_attention_heads]
  uint64_t* histogram = nullptr;
  /// Gets the unquantized queries, [tokens of the batch, heads, head_dim]; empty: not wanted.
  /// relative: the states of relative logits, [tokens, heads, relative_rank]; without data where
  /// the layer has none.
  std::function<void(const HeadsView& q, const HeadsView& relative)> keep = {};

  bool are_wanted() const { return ranges || keep; }
};

/// States of a layer beside K and V after the tokens so far, one for each sequence of a cache,
/// float32.
struct LayerStates {
  // Of a recurrent mixer:
  Buffer convolution = {};  ///< [slots, kernel - 1, channels]
  /// [slots, heads, head_dim, state_dim], a delta net's [.., state_dim, head_dim]
  Buffer scan = {};
  // Inputs of the convolutions of K and V, and of the outputs of attention and MLP, [slots,
  // short_kernel - 1, channels]:
  Buffer key_value = {}, attention_output = {}, mlp_output = {};
  Buffer ngrams = {};  ///< [slots, convolved_rows - 1, streams * hidden_size]
  int64_t slots = 1;

  static constexpr std::array<Buffer LayerStates::*, 6> all_parts() {
    return {&LayerStates::convolution,      &LayerStates::scan,       &LayerStates::key_value,
            &LayerStates::attention_output, &LayerStates::mlp_output, &LayerStates::ngrams};
  }
  float* of(Buffer LayerStates::*part, int64_t slot) const {
    const Buffer& all = this->*part;
    return all.as<float>() + slot * static_cast<int64_t>(all.size() / sizeof(float)) / slots;
  }
};

/// Segments of a batch whose sequences have neighbouring slots.
struct SlotRun {
  std::span<const Segment> segments;
  int64_t first_slot = 0;
};
/// Runs of all segments of the batch; a single one where they continue no states.
std::vector<SlotRun> slot_runs(const TokenBatch& batch, bool continues_states);

/// Angle per position for each pair of dimensions, [rotary_dim / 2], and the factor of cos and sin.
/// Only dynamic and longrope scaling depend on sequence_length. Source: transformers
/// `ROPE_INIT_FUNCTIONS`.
struct RopeFrequencies {
  std::vector<float> inverse;
  float attention_factor = 1.0f;
};
RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t sequence_length);

/// cos and sin for all positions in use, in backend memory.
class RopeTable {
 public:
  /// Makes rows for the positions of sequences of these lengths, and for places of images. rope
  /// must outlive the table.
  RopeTable(const RopeConfig& rope, const std::vector<int64_t>& sequence_lengths, Backend& backend,
            const std::set<TokenPlace>& places = {});

  const float* cos() const { return cos_.as<float>(); }
  const float* sin() const { return sin_.as<float>(); }
  /// Tables for queries, which may scale with the position.
  const float* query_cos() const { return query_cos_.size() > 0 ? query_cos_.as<float>() : cos(); }
  const float* query_sin() const { return query_sin_.size() > 0 ? query_sin_.as<float>() : sin(); }
  int64_t rotary_dim() const { return rope_->rotary_dim; }
  /// Tables [positions, unturned_dim / 2] under which the unturned dimensions of queries grow and
  /// do not turn; null where queries do not scale or all dimensions turn.
  const float* growth_cos() const { return growth_.size() > 0 ? growth_.as<float>() : nullptr; }
  const float* growth_sin() const { return no_turn_.as<float>(); }
  int64_t unturned_dim() const { return rope_->unturned_dim; }
  /// Table row of a position in a sequence of that length.
  int32_t row(int64_t position, int64_t sequence_length) const;
  /// Table row of a token's place.
  int32_t row_of(const TokenPlace& place) const { return place_rows_.at(place); }

 private:
  const RopeConfig* rope_;
  std::map<int64_t, int64_t> first_row_;      ///< by rope_block
  std::map<TokenPlace, int32_t> place_rows_;  ///< behind those of positions
  void make_growth(size_t rows, Backend& backend);

  Buffer cos_, sin_, query_cos_, query_sin_, growth_, no_turn_;
};

/// Key under which sequences share frequencies: 0 for all unscaled ones, the length with dynamic
/// scaling, 1 beyond longrope's threshold.
int64_t rope_block(const RopeConfig& rope, int64_t sequence_length);

/// Rows of the table of each block, by block: the longest of the sequences.
std::map<int64_t, int64_t> rope_rows(const RopeConfig& rope, std::span<const int64_t> lengths);

RopeTables rope_tables(const ModelConfig& config, const std::vector<int64_t>& sequence_lengths,
                       Backend& backend, const std::set<TokenPlace>& places = {});

/// The places of all samples, null where all tokens are text.
std::set<TokenPlace> places_of(std::span<const EmbeddedTokens* const> samples);

}  // namespace kvcal
