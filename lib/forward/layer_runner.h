#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"
#include "forward/activations.h"
#include "forward/linear_observation.h"
#include "forward/linear_product.h"
#include "forward/packed_layer.h"
#include "forward/rope.h"
#include "forward/token_batch.h"

namespace kvcal {

/// Runs one decoder layer over one batch. Owns only the batch's activations; the caller owns the
/// residual stream. Order of calls: keys_values, then the observation or storage of its result,
/// then finish.
class LayerRunner {
 public:
  LayerRunner(const ModelConfig& config, Backend& backend, ComputeType type, int64_t max_tokens);

  /// Input norm, K and V projections and their norms: everything before Backend::enter_cache, which
  /// rotates, observes and stores K and V in one pass. For latent attention, "K" is the normed
  /// latent and "V" the key to rotate, as in transformers. The views stay valid until the next
  /// call.
  struct KeysValues {
    HeadsView k, v;
    RopeArgs rope;  ///< of K, or of V for latent attention; x is null without rotation
    EnterCacheArgs entry() const {
      EnterCacheArgs args;
      args.k.x = k;
      args.v.x = v;
      args.rope = rope;
      return args;
    }
  };
  /// Inputs of the next layers, in backend memory: the embeddings of the batch's tokens [tokens,
  /// hidden_size], and embed_layer_input of the layer [tokens, layer_input_size].
  struct LayerInputs {
    const float* embedded = nullptr;
    const float* rows = nullptr;
  };
  void take_inputs(const LayerInputs& inputs) { inputs_ = inputs; }

  /// hidden: [streams, num_tokens, hidden_size] float32, of which layer 0 reads the first alone. In
  /// a layer without a cache of its own k and v are without data.
  KeysValues keys_values(const PackedLayer& layer, int64_t layer_index, const float* hidden,
                         const TokenBatch& batch, const RopeTables& ropes);

  /// Buffers of one batch for what keys_values makes, so that a later pass over the layer need not
  /// make it again. Only for backends that leave entered heads as they are.
  struct Kept {
    Buffer normed, key_value;
    KeysValues made;
    int64_t layer = -1;  ///< whose keys and values it holds; -1: none
  };
  /// Whether Kept holds all that keys_values makes.
  bool can_keep() const { return backend_.leaves_entered_heads() && config_.streams == 1; }
  uint64_t kept_bytes(int64_t tokens) const;
  Kept make_kept(int64_t tokens);
  /// The runner has the buffers of a batch meanwhile; kept null: its own.
  struct Exchanged {
    Exchanged(LayerRunner& runner_of, Kept* kept_of) : runner(runner_of), kept(kept_of) {
      if (kept) runner.exchange(*kept);
    }
    ~Exchanged() {
      if (kept) runner.exchange(*kept);
    }
    Exchanged(const Exchanged&) = delete;
    Exchanged& operator=(const Exchanged&) = delete;
    LayerRunner& runner;
    Kept* kept;
  };
  /// Stands for keys_values of the layer and batch that kept holds, whose buffers the runner has.
  KeysValues keys_values_of(const Kept& kept, const TokenBatch& batch);

  /// Runs the rest of the layer after keys_values of the same batch: Q, attention over storage, a
  /// recurrent mixer beside it, output projections, and MLP or experts. Adds the result to hidden
  /// [streams, num_tokens, hidden_size] float32; behind the last layer the first of the streams is
  /// the model's.
  void finish(const PackedLayer& layer, int64_t layer_index, float* hidden, const TokenBatch& batch,
              const RopeTables& ropes, const KvStorage& storage, const SeenQueries& seen = {});
  /// Expands the latent and the rotated key to K and V of all heads, for the rows in segments.
  ExpandedLatent expand(const PackedLayer& layer, std::span<const Segment> segments,
                        const KvStorage& storage);
  /// Makes Q after its norm and RoPE, as finish does. Call after keys_values of the same batch.
  void query(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
             const RopeTables& ropes, const SeenQueries& seen);
  /// The input of lm_head: hidden after the final norm.
  void run_final_norm(const PackedNorm& norm, const float* hidden, const TokenBatch& batch);

  /// Copy of the keys that the last layer with an indexer selected for the batch; empty where none
  /// did. restore_selection makes the next layers use it.
  Buffer copy_of_selection();
  void restore_selection(Buffer selection) { selection_ = std::move(selection); }

  /// Runs a whole layer with a recurrent mixer or none. state continues the batch's sequences;
  /// null: all sequences begin here.
  void run_without_attention(const PackedLayer& layer, int64_t layer_index, float* hidden,
                             const TokenBatch& batch, RecurrentState* state);

  /// observer gets the input of every later Linear.
  void observe_linear_inputs(LinearInputObserver observer) { observer_ = std::move(observer); }
  /// Folds the largest magnitude of every later Linear input into its slot, if possible in the
  /// operation that makes the input. An empty slot_of ends this.
  void fold_linear_amax(AmaxSlotOf slot_of) { slot_of_ = std::move(slot_of); }
  /// Observes the inputs of every expert as if it got all tokens.
  void show_all_experts(bool wanted) { shows_all_experts_ = wanted; }

 private:
  void exchange(Kept& kept);
  /// Of an activation, which is reserved for most_rows_.
  size_t bytes_of_tokens(const Buffer& buffer, int64_t tokens) const;
  void begin_batch(int64_t layer_index, const TokenBatch& batch);
  void normalize(const float* x, const PackedNorm& norm, int64_t rows, ComputeType type, void* out,
                 AmaxSlot seen);
  /// Converts float32 [rows, width] to type.
  void convert(ComputeType type, const float* x, int64_t rows, int64_t width, void* out,
               AmaxSlot seen);
  void normalize_heads(const HeadsView& heads, const PackedNorm& norm);
  void limit_heads(const HeadsView& heads);
  /// out: [rows, out_features].
  void project(const void* x, const PackedLinear& linear, int64_t rows, float* out);
  void project(const void* x, const PackedLinear& linear, int64_t rows, const Buffer& out) {
    project(x, linear, rows, out.as<float>());
  }
  void project(const Buffer& x, const PackedLinear& linear, int64_t rows, const Buffer& out) {
    project(x.data(), linear, rows, out);
  }
  /// The way of a branch into the residual stream: hidden += multiplier · norm(x), without a norm
  /// that does not exist.
  struct Branch {
    const PackedNorm& norm;
    float multiplier = 1.0f;
    bool adds_directly() const { return !norm.exists() && multiplier == 1.0f; }
  };
  Branch branch(const PackedNorm& norm, float multiplier = 1.0f) const {
    return {norm, config_.residual_multiplier * multiplier};
  }
  Branch mlp_branch(const PackedLayer& layer) const {
    return branch(layer.mlp_output_norm, config_.mlp_output_multiplier);
  }
  /// Adds linear(x) to hidden by the branch.
  void add_projected(const void* x, const PackedLinear& linear, const Branch& branch, int64_t rows,
                     float* hidden);
  /// add_projected for a product that projected already holds.
  void add_output(const Branch& branch, int64_t rows, float* hidden);
  ResidualNormArgs output_args(const Branch& branch, int64_t rows, float* hidden) const;
  /// Adds x to hidden by the branch.
  void add_normed(const Buffer& x, const Branch& branch, int64_t rows, float* hidden);
  /// add_projected between attention or a mixer and the MLP. Also writes the MLP's input to normed
  /// where one operation can do both, and then returns true.
  bool add_mixed(const PackedLayer& layer, const void* x, const PackedLinear& linear,
                 float multiplier, int64_t rows, float* hidden);
  /// x is null where the layer has no RoPE.
  RopeArgs rope_of(const HeadsView& heads, int64_t layer_index, const TokenBatch& batch,
                   const RopeTables& ropes, bool is_query) const;
  /// Scales the dimensions of queries that do not turn, where queries grow with the position.
  void grow_unturned(const HeadsView& queries, int64_t layer_index, const TokenBatch& batch,
                     const RopeTables& ropes);
  KeysValues latent_keys_values(const PackedLayer& layer, int64_t layer_index,
                                const TokenBatch& batch, const RopeTables& ropes);
  /// Whether attention over storage can rotate Q, so that query need not.
  bool turns_in_attention(int64_t layer_index, const RopeTables& ropes, const KvStorage& storage,
                          const SeenQueries& seen) const;
  /// query, of which attention rotates the result where turns_later.
  void make_query(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
                  const RopeTables& ropes, const SeenQueries& seen, bool turns_later);
  /// Quantizes query for attention, where storage has scales for it.
  void quantize_query(int64_t layer_index, int64_t tokens, const KvStorage& storage);
  /// The layer's Q, [tokens, heads, head_dim].
  HeadsView query_view(int64_t layer_index, int64_t tokens) const;
  /// Makes Q in two steps, through latent attention's query_rank.
  void query_of_rank(const PackedLayer& layer, int64_t rows);
  /// Selects the keys that attention reads, after query. Without words where it reads all.
  KeySelection select_keys(const PackedLayer& layer, int64_t layer_index, const float* hidden,
                           const TokenBatch& batch, const RopeTables& ropes,
                           const KvStorage& storage);
  /// Makes the indexer's keys of the batch, and returns the rows that its queries score.
  const float* index_keys(const PackedIndexer& indexer, int64_t layer_index,
                          const TokenBatch& batch, const RopeTables& ropes,
                          const KvStorage& storage);
  /// RopeArgs of an indexer's queries or keys.
  RopeArgs indexer_rope(float* data, int64_t heads, int64_t layer_index, const TokenBatch& batch,
                        const RopeTables& ropes) const;
  /// Computes attention of query over storage, into attended; with segments, over K and V of all
  /// heads.
  void attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
              const KvStorage& storage, const KeySelection& selection);
  void attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
              const KvStorage& kv, std::span<const Segment> segments,
              const KeySelection& selection = {});
  /// Attention of an expanded latent: long segments read the keys selected, others all.
  void attend(const PackedLayer& layer, int64_t layer_index, const TokenBatch& batch,
              const ExpandedLatent& expanded, const KeySelection& selection);
  /// Multiplies ungated by the gate's projection, into attended.
  void gate_attended(const PackedLayer& layer, int64_t layer_index, int64_t rows);
  /// Runs the recurrent mixer on hidden up to its output projection, whose input is in mixed.
  void mix(const PackedLayer& layer, const float* hidden, const TokenBatch& batch,
           const RecurrentState* state);
  // Its steps in order: mixed_in to convolved to scanned to mixed.
  void gate_before_convolution(const PackedRecurrence& mixer, int64_t rows);
  void convolve(const PackedRecurrence& mixer, const StateRun& run);
  void scan(const PackedRecurrence& mixer, int64_t tokens, std::span<const StateRun> runs);
  void project_mamba(const PackedRecurrence& mixer, int64_t tokens);
  void scan_mamba(const PackedRecurrence& mixer, const StateRun& run);
  void scan_mamba2(const PackedRecurrence& mixer, const StateRun& run);
  void scan_delta(const PackedRecurrence& mixer, const StateRun& run);
  void gate_scanned(const PackedRecurrence& mixer, int64_t rows);
  /// Predicts the streams that the layer begins with, and returns the active one.
  const float* predict_streams(const PackedLayer& layer, const float* hidden, int64_t rows);
  /// Writes the streams of the embedding to streams.
  void project_streams(const PackedStreams& packed, const float* embedded, int64_t rows);
  /// Writes the coefficients that linear makes of the routes of x: tanh(router(norm(x))).
  void route_streams(const PackedStreams& packed, const float* x, const PackedLinear& linear,
                     Role role, int64_t rows);
  /// A copy of the predicted active stream, which the layer changes.
  float* begin_stream(int64_t rows);
  /// Writes the streams to hidden: predicted, each changed as the layer changed the active one.
  void correct_streams(const PackedLayer& layer, float* hidden, int64_t rows);
  /// Writes the mean of the streams to the first, behind the last layer.
  void join_streams(const PackedStreams& packed, float* hidden, int64_t rows);
  /// Makes the residual beside attention, of attention's input x and its norm.
  void make_laurel(const PackedLayer& layer, const float* x, int64_t rows);
  /// hidden = (hidden + laurel) / sqrt(2).
  void add_laurel(float* hidden, int64_t rows);
  /// Adds the layer's own input, gated by hidden, to hidden.
  void add_layer_input(const PackedLayer& layer, int64_t layer_index, float* hidden, int64_t rows);
  /// Writes the input of that gate to normed.
  void gate_input(const PackedLayer& layer, const float* hidden, int64_t rows);
  /// Adds the norm of MLP and experts together to hidden; normed holds the MLP's input.
  void add_both(const PackedLayer& layer, float* hidden, int64_t rows);
  /// Adds the MLP or the experts of normed to hidden; without is_normed, the norm of hidden runs
  /// first. Does nothing where the layer has no MLP.
  void feed_forward(const PackedLayer& layer, float* hidden, int64_t rows, bool is_normed);
  /// Consecutive rows and the MLP that they run through: those routed to one expert, or all.
  struct MlpShare {
    const PackedMlp& mlp;
    int64_t rows = 0;
    int64_t index = 0;                   ///< of the expert
    std::vector<Segment> segments = {};  ///< as in LinearInput; empty: the batch's
  };
  /// The input of MLPs.
  struct MlpInput {
    std::span<const MlpShare> shares;  ///< one behind the other
    const void* x = nullptr;           ///< [rows of all shares, hidden] of the compute type
    Role role = Role::kUp;             ///< of the input
    bool is_observed = true;
  };
  /// Writes the activated inner rows to activated.
  void activate(const MlpInput& input);
  /// activate for all rows of normed.
  void activate_all(const PackedMlp& mlp, int64_t rows, Role role = Role::kUp, int64_t index = 0) {
    const MlpShare all{.mlp = mlp, .rows = rows, .index = index};
    activate({.shares = {&all, 1}, .x = buffers_.normed.data(), .role = role});
  }
  /// Observes each share's rows of x, [rows of all shares, width], as its input.
  void observe_shares(const MlpInput& input, Role role, const void* x, int64_t width);
  /// Experts that run together, because their rows fit the activations.
  struct ExpertWave {
    int64_t first = 0, count = 0;  ///< rows, among those of all experts
    std::vector<MlpShare> shares = {};
  };
  /// Computes the router's logits of every row, of the experts and the shared gate.
  void score_experts(const PackedLayer& layer, const float* hidden, int64_t rows);
  /// Chooses experts by the logits; the number of rows of each.
  std::vector<int32_t> route(const PackedExperts& experts, int64_t rows);
  /// Adds the sum of the chosen experts and the shared expert to out. Call after score_experts.
  void mix_experts(const PackedLayer& layer, int64_t rows, float* out);
  /// Adds the experts of a wave to out, [rows, hidden_size].
  void add_experts(const ExpertWave& wave, int64_t rows, bool is_observed, float* out);
  /// Adds the shared expert to out.
  void add_shared(const PackedMlp& shared, int64_t rows, float* out);
  /// Writes the rows of the wave's tokens to gathered, weighed where weights multiply inputs.
  void gather(const ExpertWave& wave);
  /// Observes the inputs of every expert for all tokens.
  void show_experts(const PackedLayer& layer, int64_t rows);
  /// input: layer is set here; empty segments mean the batch's.
  void observe(LinearInput input);
  /// x: [rows, width] of the compute type.
  void observe(Role role, const Buffer& x, int64_t rows, int64_t width) {
    observe({.role = role, .x = x.data(), .type = type_, .rows = rows, .width = width});
  }
  /// Rows of each segment that are in tokens, which ascend.
  std::vector<Segment> segments_of(std::span<const int32_t> tokens) const;
  AmaxSlot slot_of(Role role, int64_t index = 0) const {
    return slot_of_ ? slot_of_(role, index) : AmaxSlot{};
  }
  /// The slot of normed where the MLP reads all of it; none where the MLP reads only some rows.
  AmaxSlot mlp_input_slot(const PackedLayer& layer) const;
  /// Folds x into slot, for inputs whose operation cannot do it.
  void fold(AmaxSlot slot, const void* x, int64_t count, ComputeType type);
  static bool has_feed_forward(const PackedLayer& layer) {
    return layer.mlp.width > 0 || !layer.moe.experts.empty();
  }

  const ModelConfig& config_;
  Backend& backend_;
  ComputeType type_;
  int64_t most_rows_;  ///< for which activations are reserved
  LinearInputObserver observer_;
  AmaxSlotOf slot_of_;
  bool shows_all_experts_ = false;
  RopeArgs query_rope_;                ///< that attention applies to Q; x.data null: none
  bool is_decoding_ = false;           ///< of the batch's products
  std::span<const Segment> segments_;  ///< of the batch
  int64_t layer_index_ = 0;            ///< of the last keys_values
  LayerInputs inputs_;
  Activations buffers_;
  Buffer expert_counts_;  ///< of RouteArgs
  ProductScratch product_scratch_;
  Buffer selection_;  ///< rows of KeySelection of the batch
};

}  // namespace kvcal
