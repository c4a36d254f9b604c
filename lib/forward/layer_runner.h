#pragma once

#include <cstdint>
#include <utility>

#include "forward/attended_sums.h"
#include "forward/attention.h"
#include "forward/feed_forward.h"
#include "forward/gated_streams.h"
#include "forward/hyper_connections.h"
#include "forward/recurrent_mixer.h"
#include "forward/residual_streams.h"

namespace kvcal {

/// Base that is made before LayerPart, which refers to it.
struct LayerContextHolder {
  LayerContext held_context;
};

/// Runs one decoder layer over one batch. Owns only the batch's activations; the caller owns the
/// residual stream. Order of calls: begin, keys_values where the layer has attention, then the
/// observation or storage of its result, then finish.
class LayerRunner : private LayerContextHolder, private LayerPart {
 public:
  LayerRunner(const ModelConfig& config, Backend& backend, ComputeType type, int64_t max_tokens);
  LayerRunner(const LayerRunner&) = delete;
  LayerRunner& operator=(const LayerRunner&) = delete;

  /// Names the layer and the batch that the calls below run. Borrows all until finish.
  void begin(const PackedLayer& layer, int64_t index, const TokenBatch& batch);
  void take_inputs(const LayerInputs& inputs) { inputs_ = inputs; }

  /// Input norm, K and V projections and their norms: everything before Backend::enter_cache, which
  /// rotates, observes and stores K and V in one pass. hidden: [streams, num_tokens, hidden_size]
  /// float32; layer 0 reads only the first stream. In a layer without a cache of its own k and v
  /// are without data. states: which the batch's sequences continue; null: all begin. The views
  /// stay valid until the next call.
  KeysValues keys_values(const float* hidden, const LayerStates* states = nullptr);

  /// Runs the rest of the layer: Q, attention over storage, a recurrent mixer beside or instead of
  /// it, output projections, and MLP or experts. Adds the result to hidden [streams, num_tokens,
  /// hidden_size] float32; behind the last layer the first of the streams is the model's.
  void finish(float* hidden, const KvView& storage, const ObservedQueries& seen = {});
  /// Makes Q after its norm and RoPE, as finish does. Call after keys_values.
  void query(const ObservedQueries& seen) { attention_.query(seen); }
  /// Makes and observes the input of lm_head.
  void make_head_input(const PackedHeadInput& input, const float* hidden, const TokenBatch& batch);

  /// Buffers of one batch for what keys_values makes, so that a later pass over the layer need not
  /// make it again. Only for backends that leave entered heads as they are.
  struct BatchKeysValues {
    Buffer normed, key_value;
    KeysValues made;
    int64_t layer = -1;  ///< whose keys and values it holds; -1: none
  };
  /// Whether BatchKeysValues holds all that keys_values makes.
  bool can_keep() const { return backend_.leaves_entered_heads() && config_.streams == 1; }
  uint64_t kept_bytes(int64_t tokens) const;
  BatchKeysValues make_kept(int64_t tokens);
  /// The runner has the buffers of a batch meanwhile; kept null: its own.
  struct Exchanged {
    Exchanged(LayerRunner& runner_of, BatchKeysValues* kept_of) : runner(runner_of), kept(kept_of) {
      runner.exchange(kept);
    }
    ~Exchanged() { runner.exchange(kept); }
    Exchanged(const Exchanged&) = delete;
    Exchanged& operator=(const Exchanged&) = delete;
    LayerRunner& runner;
    BatchKeysValues* kept;
  };
  /// Stands for keys_values of the layer and batch that kept holds, whose buffers the runner has.
  KeysValues keys_values_of(const BatchKeysValues& kept);

  /// Attention without a batch: the latent of stored rows, and the keys that an indexer selected.
  Attention& attention() { return attention_; }
  /// observer gets the input of every later Linear.
  void observe_linear_inputs(LinearInputObserver observer) {
    context_.observer = std::move(observer);
  }
  /// Folds the largest magnitude of every later Linear input into its slot, if possible in the
  /// operation that makes the input. An empty slot_of ends this.
  void fold_linear_amax(AmaxSlotOf slot_of) { context_.slot_of = std::move(slot_of); }
  void show_all_experts(bool wanted) { feed_forward_.show_all_experts(wanted); }

 private:
  /// What attention and mixers read, before its norm.
  const float* enter(const float* hidden);
  /// finish where gates mix the residual streams.
  void finish_gated(float* hidden, const KvView& storage, const ObservedQueries& seen);
  /// finish where layers attend over residual sums.
  void finish_attended(float* hidden, const KvView& storage, const ObservedQueries& seen);
  /// Adds what attention or the mixer made to hidden.
  void add_attended(float* hidden);
  void exchange(BatchKeysValues* kept);
  /// Adds a mix to hidden, the last one before the MLP or not. Also writes the MLP's input to
  /// normed where one operation can do both, and then returns true.
  bool add_mixed(const Buffer& x, const PackedLinear& linear, float multiplier, float* hidden,
                 bool is_last, const LayerStates* states);
  /// Bytes of an activation, which is reserved for most_rows.
  size_t bytes_of_tokens(const Buffer& buffer, int64_t tokens) const;

  Attention attention_;
  RecurrentMixer mixer_;
  FeedForward feed_forward_;
  ResidualStreams streams_;
  HyperConnections connections_;
  GatedStreams gated_streams_;
  AttendedSums sums_;
  LayerInputs inputs_;
};

}  // namespace kvcal
