// A comparison of attention keeps what it needs in the pass that ends a layer. Scales are known
// only after the layer's last observation, with several devices or ranks only after the merge.
// So that pass keeps K, V and some queries of the first samples, and a call of its own then
// tries any scales on them. No state holds what was kept: a resumed run goes on behind the
// comparison, never between the two.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/attention_operations.h"
#include "forward/attention.h"
#include "forward/layer_forward.h"

namespace kvcal {

/// Queries, keys and values of a few samples of one layer, and the comparison of attention over
/// quantized K and V with attention over these. Lies in backend memory; borrows.
class ComparedAttention {
 public:
  /// samples: of the forward pass, from its first on.
  ComparedAttention(const ModelConfig& config, Backend& backend, int64_t samples)
      : config_(config), backend_(backend), samples_(static_cast<size_t>(samples)) {}

  /// Upper bound of its bytes for samples of such lengths, in tokens.
  static uint64_t bytes(const ModelConfig& config, std::span<const int64_t> lengths);

  /// Drops what earlier layers left.
  void begin_layer(int64_t layer);
  /// Whether any sample of a batch is compared.
  bool compares(int64_t first_sample) const { return first_sample < std::ssize(samples_); }
  /// Keeps K and V as they are before they enter the cache, rotated, of the compared samples among
  /// those of a batch.
  void keep_keys(int64_t first_sample, const TokenBatch& tokens, const KeysValues& made);
  /// Keeps some queries of each, after keep_keys. q: [tokens of the batch, heads, head_dim];
  /// relative: as ObservedQueries::keep gets it.
  void keep_queries(int64_t first_sample, std::span<const Segment> segments, const HeadsView& q,
                    const HeadsView& relative);

  /// Compares all that was kept, by candidates with scales for each head of the layer's cache.
  AttentionComparison compare(Attention& attention, const PackedLayer& layer,
                              std::span<const KvQuantization> candidates);

 private:
  struct ReferenceInputs {
    Buffer q, k, v, relative;
    std::vector<int64_t> queries = {};  ///< positions
    std::vector<KeySpan> seen = {};     ///< by each query
    int64_t keys = 0;
  };
  struct Attended {
    std::vector<float> logs, out;
  };
  /// K and V of all heads, for attention.
  struct Read {
    const float *k = nullptr, *v = nullptr;
  };
  std::vector<int64_t> chosen_queries(int64_t tokens) const;
  /// images: of the query's sample, or null.
  KeySpan seen_by(int64_t query, const EmbeddedTokens* images) const;
  /// What attention reads of stored K and V. Valid until the next call.
  Read read(Attention& attention, const PackedLayer& layer, const ReferenceInputs& kept,
            const KvView& storage);
  /// What attention reads of K and V in the codes of a candidate.
  Read read_quantized(Attention& attention, const PackedLayer& layer, const ReferenceInputs& kept,
                      const KvQuantization& candidate);
  Attended attend(const PackedLayer& layer, const ReferenceInputs& kept, const Read& read);
  std::vector<AttentionError> errors(const ReferenceInputs& kept, const Attended& exact,
                                     const Attended& other) const;

  const ModelConfig& config_;
  Backend& backend_;
  int64_t layer_ = -1;
  std::vector<ReferenceInputs> samples_;
  // Of one candidate and sample:
  Buffer k_codes_, v_codes_, k_scales_, v_scales_, k_read_, v_read_, logs_, out_;
};

}  // namespace kvcal
