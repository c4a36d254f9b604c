// MLA is expanded, not absorbed. Attention gets K and V of all heads from the cached latent. For
// prefill this costs the least, and it needs no kernel of its own. Generation is slower for it:
// each step expands the whole cache.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "family/architecture.h"
#include "forward/layer_context.h"

namespace kvcal {

/// Attention of a layer, up to its output projection: plain, over a latent (MLA), or over the keys
/// that an indexer selects. Reads normed, the layer's normed input.
/// Source: transformers 5.23, models/deepseek_v3, models/deepseek_v32 and models/glm_moe_dsa.
class Attention : private LayerPart {
 public:
  explicit Attention(LayerContext& context) : LayerPart(context) {}

  /// K and V with their norms, before RoPE of K. states: as LayerRunner::keys_values has them.
  KeysValues keys_values(const LayerStates* states);
  /// Q after its norm and RoPE.
  void query(const ObservedQueries& seen) { make_query(seen, false); }
  /// Makes Q and writes attention over storage to attended. hidden: the layer's input.
  void run(const float* hidden, const KvView& storage, const ObservedQueries& seen);
  /// Expands the latent and the rotated key to K and V of all heads, for the rows in segments.
  ExpandedLatent expand(const PackedLayer& layer, std::span<const Segment> segments,
                        const KvView& storage);

  /// Copy of the keys that the last layer with an indexer selected for the batch; empty where none
  /// did. restore_selection makes the next layers use it.
  Buffer copy_of_selection();
  void restore_selection(Buffer selection) { selection_ = std::move(selection); }

 private:
  const RopeTable* rope_table() const {
    return own().rope == kNoRope ? nullptr : &(*batch().ropes)[static_cast<size_t>(own().rope)];
  }
  /// x is null where the layer has no RoPE.
  RopeArgs rope_of(const HeadsView& heads, bool is_query) const;
  void normalize_heads(const HeadsView& heads, const PackedNorm& norm);
  void limit_heads(const HeadsView& heads);
  KeysValues latent_keys_values();

  /// The layer's Q, [rows, heads, head_dim].
  HeadsView query_view() const;
  /// Whether attention over storage can rotate Q, so that make_query need not.
  bool turns_in_attention(const KvView& storage, const ObservedQueries& seen) const;
  /// Makes Q, which attention rotates where turns_later.
  void make_query(const ObservedQueries& seen, bool turns_later);
  /// Projects Q in two steps, through latent attention's query_rank.
  void project_query_of_rank();
  /// Projects K and V, and convolves them where the layer does.
  void project_keys_values(const LayerStates* states);
  /// Scales the dimensions of Q that do not turn, or of the states of relative logits, where
  /// queries grow with the position.
  void grow_unturned(const HeadsView& queries);
  /// Makes the states of relative logits, where the layer has them.
  void make_relative();
  HeadsView relative_view() const;

  /// Selects the keys that attention reads, after make_query. Without words where it reads all.
  KeySelection select_keys(const float* hidden, const KvView& storage);
  /// Scores keys by the indexer, and writes those selected to out.
  void run_indexer(const float* hidden, const float* keys, const KeySelection& selection,
                   uint32_t* out);
  /// Makes the indexer's keys of the batch, and returns the rows that its queries score.
  const float* index_keys(const KvView& storage);
  /// Writes the keys that the indexer made for a segment to rows, normed and turned.
  void finish_index_keys(const Segment& segment, const float* made, float* rows);
  /// Makes the means of the blocks of keys, normed and turned by the positions of the blocks' first
  /// keys, and returns the batch's segments with their rows of block_keys_.
  std::vector<Segment> make_block_keys(const float* keys);
  /// Whether the indexer selects blocks of keys.
  bool selects_blocks() const { return config_.architecture->indexer == Indexer::kBlocks; }
  /// RopeArgs of an indexer's queries or keys.
  RopeArgs indexer_rope(float* data, int64_t heads) const;

  void read(const KvView& storage, const KeySelection& selection);
  /// Attention over K and V of all heads.
  void read(const KvView& kv, std::span<const Segment> segments,
            const KeySelection& selection = {});
  /// The same with another window than the layer's.
  void read(const KvView& kv, std::span<const Segment> segments, const KeySelection& selection,
            int64_t window);
  /// Whether tokens of images in the batch see keys behind them.
  bool sees_images_whole() const { return own().sees_images_whole && !batch().embedded.empty(); }
  /// Attention of an expanded latent: long segments read the keys selected, others all.
  void read(const ExpandedLatent& expanded, const KeySelection& selection);
  /// Multiplies ungated by the gate's projection, into attended.
  void gate_attended();
  /// Makes attended of ungated by its norm.
  void normalize_attended();

  RopeArgs query_rope_;  ///< that attention applies to Q; x.data null: none
  Buffer selection_;     ///< rows of KeySelection of the batch
  Buffer block_keys_;    ///< [blocks of all segments, index head_dim]
};

/// Quantizes queries, in contiguous rows, to the cache's FP8 type with one scale a head, and
/// dequantizes them in place, as an engine with FP8 attention does. out: scratch for the codes.
void quantize_query(Backend& backend, const StoreKvArgs& args);

}  // namespace kvcal
