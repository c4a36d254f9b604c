#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"
#include "family/roles.h"
#include "forward/kv_cache.h"
#include "forward/layer_forward.h"
#include "forward/token_batch.h"
#include "stored/weights.h"

namespace kvcal {

/// Input shared by one or more Linears. One role names it: kQuery (and K, V), kQueryUp, kLatentUp,
/// kOutput, kUp (and gate), kDown, kExpertUp, kExpertDown, kRouter, kSharedUp, kSharedDown,
/// kMixerIn, kMixerStates, kMixerStep, kMixerAlphaUp, kMixerZUp, kMixerOut, kLmHead.
struct LinearInput {
  int64_t layer = 0;
  Role role;
  int64_t index = 0;  ///< of an expert
  const void* x = nullptr;
  ComputeType type = ComputeType::kFloat32;
  int64_t rows = 0, width = 0;
  /// Rows of each sample of the batch, in order; an expert may have none of a sample.
  std::span<const Segment> segments = {};
};

using LinearInputObserver = std::function<void(const LinearInput&)>;
/// Slot for the largest magnitude of a Linear's input; index: of an expert.
using AmaxSlotOf = std::function<AmaxSlot(Role role, int64_t index)>;

/// Collects observations of one layer's Linear inputs in backend memory, which is read once a
/// layer. Borrows the backend.
class LinearCollector {
 public:
  /// detail: not kNone.
  LinearCollector(const ModelConfig& config, Backend& backend, LinearDetail detail,
                  int64_t num_samples);

  bool wants_amax() const { return detail_ == LinearDetail::kAmax; }
  /// Slot into which the producer of an input folds its largest magnitude.
  AmaxSlot slot(Role role, int64_t index);
  /// Observes an input of a batch whose first sample is first_sample.
  void see(const LinearInput& input, int64_t first_sample);
  /// Observations since the last call, by role, then index. Experts that no token reached have no
  /// entry.
  std::vector<LinearObservation> take();

  /// Upper bound of its bytes, including the result of take.
  static uint64_t bytes(const ModelConfig& config, LinearDetail detail, size_t num_samples);

 private:
  struct Place {
    int64_t place = 0;
    uint64_t tokens = 0, values = 0;
  };
  Place& place_of(Role role, int64_t index);
  void reset(size_t places);
  LinearObservation observation(const std::pair<Role, int64_t>& key, const Place& at) const;

  Backend& backend_;
  LinearDetail detail_;
  int64_t capacity_, num_samples_;
  Buffer amax_, nonfinite_;     ///< [capacity_] float32 and uint64
  Buffer ranges_, histograms_;  ///< [capacity_, samples] and [capacity_, kBins]
  std::map<std::pair<Role, int64_t>, Place> places_;
};

/// The samples of a pass, cut where buckets of positions and images begin and end, so that one
/// observation of K and V gives their extremes by sample, by position and by kind of token.
class PositionPieces {
 public:
  /// Appends a batch, whose segments are samples from their first token on. Segments may be empty.
  void add_batch(const TokenBatch& batch);

  /// Segments of a batch's pieces.
  std::span<const Segment> segments(size_t batch) const;
  /// Row of a batch's first piece in the ranges of all pieces.
  size_t first(size_t batch) const { return firsts_[batch]; }
  size_t count() const { return segments_.size(); }

  /// Ranges [samples, heads] and by position, from ranges of pieces [count(), heads].
  void fold(std::span<const ObservedRange> pieces, size_t heads, KvObservation& seen) const;

 private:
  struct Piece {
    size_t sample = 0, bucket = 0;
    int64_t position = 0;  ///< of its first token
    bool is_image = false;
  };
  void add_piece(const Segment& sample, int64_t position, int64_t end, bool is_image);

  size_t num_samples_ = 0;
  bool has_images_ = false;
  std::vector<size_t> firsts_;  ///< [batches]
  std::vector<Segment> segments_;
  std::vector<Piece> pieces_;
};

/// Folds the largest magnitudes of the channels of one layer's cache over the batches of a pass,
/// and keeps rows of K.
class ChannelObserver {
 public:
  /// key_rows: of each sample, at most.
  ChannelObserver(Backend& backend, const LayerCache& cache, int64_t key_rows);

  /// Keeps rows of K before it enters the cache, whose segments are whole samples. Then call see.
  void see_keys(const HeadsView& k, std::span<const Segment> segments);
  /// k, v: float32 rows of the cache that the segments name, [rows, heads, dim], backend memory.
  /// Waits for the backend.
  void see(float* k, float* v, int64_t rows, std::span<const Segment> segments);
  /// In place of both for samples without tokens.
  void see_none(size_t samples) {
    if (rows_of_sample_ > 0) key_rows_.resize(key_rows_.size() + samples);
  }
  ChannelAmax take() { return std::move(seen_); }
  std::vector<KeyRows> take_key_rows() { return std::move(key_rows_); }

 private:
  void see_side(float* x, int64_t rows, std::span<const Segment> segments,
                std::vector<float>& magnitudes);

  /// Appends the kept ones of rows with this stride, in floats, of one sample.
  void keep_rows(const float* x, int64_t stride, const Segment& sample, std::vector<float>& rows);

  Backend& backend_;
  int64_t rows_of_sample_ = 0;
  std::vector<KeyRows> key_rows_;
  Buffer ranges_;
  ChannelAmax seen_;
};

/// The extremes of the channels of one layer's cache in each sample. Has storage of its own, so
/// that it sees K after RoPE and V in float32, whatever the pass stores.
class ChannelRanges {
 public:
  ChannelRanges(Backend& backend, const LayerCache& cache, int64_t most_tokens);

  /// entry: of a batch whose segments are whole samples, before it enters the cache; its K may
  /// come out rotated, which entry then says. Waits for the backend.
  void see(EnterCacheArgs& entry, std::span<const Segment> samples);
  /// In place of it for samples without tokens.
  void see_none(size_t samples);
  /// [samples, channels] of K and of V.
  void take(LayerObservation& seen);

 private:
  void see_side(const KvBuffers::Side& side, int64_t channels, int64_t rows,
                std::span<const Segment> samples, std::vector<ObservedRange>& ranges);

  Backend& backend_;
  int64_t k_channels_, v_channels_;
  KvBuffers rows_;
  Buffer scratch_;
  std::vector<ObservedRange> k_, v_;
};

/// Observation buffers of one pass over a layer, in backend memory until the pass ends.
class PassObservers {
 public:
  /// pieces: of K and V, borrowed. query_heads: 0 where Q is not observed.
  PassObservers(Backend& backend, const PositionPieces& pieces, int64_t samples, int64_t heads,
                int64_t query_heads);

  /// Adds the observation of the batch to the cache pass.
  void join(EnterCacheArgs& args, size_t batch) const;
  ObservedQueries queries(int64_t first_sample) const;
  /// Ranges of samples of which no token runs.
  void clear(int64_t first_sample, size_t samples);
  LayerObservation take();

  std::optional<ChannelObserver> channels;  ///< in passes whose storage is float32
  std::optional<ChannelRanges> channel_ranges;

 private:
  struct Side {
    Side(Backend& backend, size_t rows, int64_t num_heads);
    ObservedRange* ranges_from(size_t row) const {
      return ranges.as<ObservedRange>() + row * heads;
    }
    /// ranges as they are: [rows, heads].
    KvObservation take(Backend& backend) const;
    size_t heads;
    Buffer ranges, histogram;
  };

  Backend& backend_;
  const PositionPieces& pieces_;
  Side k_, v_;
  std::optional<Side> q_;
};

/// Throws Error where K or V of the layer is zero in every head of every sample that has values,
/// and none of the weights that make it is zero: then a norm has met numbers beyond its range, and
/// the smallest scale would stand for no real magnitude.
void refuse_zero_cache(const LayerObservation& seen, const ModelConfig& config,
                       const Weights& weights, int64_t layer);

}  // namespace kvcal
