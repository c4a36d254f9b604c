// The layer is the outer loop: a layer's weights are loaded, every batch runs through the layer,
// its scales are made, and the weights are dropped. In the quantized mode K and V are computed
// twice, once to observe all samples and once to run the layer. That costs 4 to 6 % of a layer's
// work and avoids storing K and V of all tokens, which for 512 × 2048 tokens of an 8B model
// would take 8 GiB. A pass returns its statistics as a value; the model knows no observer. On a
// GPU only these few numbers of a layer leave the device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/diagnostics.h"
#include "core/number.h"
#include "forward/compared_attention.h"
#include "forward/hidden_states.h"
#include "forward/kv_cache.h"
#include "forward/layer_forward.h"
#include "forward/layer_prefetch.h"
#include "forward/layer_runner.h"
#include "stored/weights.h"

namespace kvcal {

class MemoryPlan;

struct LayerwiseOptions {
  ComputeType compute_type = ComputeType::kFloat32;
  int64_t batch_tokens = 0;  ///< tokens that go through a layer together; 0: the backend's choice
  /// Limit in bytes: of the whole process on a host, else of the backend's memory. HiddenStates
  /// spills beyond it.
  std::optional<uint64_t> memory_limit = {};
  /// The later request (LayerForward::request), for which the plan reserves memory.
  ObservationRequest observation = {};
  /// Tokens of the longest sample of the whole run; 0: of those given.
  int64_t longest_sample = 0;
  bool is_restored = false;           ///< restore_hidden will be called: no embedding runs
  bool shows_hidden = false;          ///< show_hidden will be called: memory is reserved for it
  LayerBytes* layer_bytes = nullptr;  ///< source of bytes, borrowed; null: mapped files
  /// [samples] what the vision tower gave each, borrowed; null: all its tokens are text. Empty:
  /// they are in every sample.
  std::vector<const EmbeddedTokens*> embedded = {};
  std::filesystem::path scratch_folder = {};  ///< for hidden states, on a host
  // On a host:
  uint64_t process_bytes = 0;  ///< the process's memory beside the forward pass
  /// Most memory that the process can get; the limit where no memory_limit is given.
  std::optional<uint64_t> process_can_take = {};
};
/// LayerForward on one backend: packs a layer's weights, runs every batch through it, drops them.
/// Peak memory: one packed layer (two where the next is packed meanwhile), the activations of one
/// batch, and the hidden states.
class LayerwiseForward : public LayerForward {
 public:
  /// samples are borrowed only by the constructor. Throws Error as MemoryPlan does.
  LayerwiseForward(const ModelConfig& config, const Weights& weights, Backend& backend,
                   std::span<const std::span<const TokenId>> samples,
                   const LayerwiseOptions& options, Diagnostics& diagnostics);
  ~LayerwiseForward() override;

  LayerResult run(const LayerCall& call) override;
  /// The same with a layer that the caller packed for this backend, at least the parts that
  /// parts_of names; null where it names none.
  LayerResult run(const LayerCall& call, const PackedLayer* layer);
  /// The parts of the layer that a call reads; nullopt: no layer.
  std::optional<LayerParts> parts_of(const LayerCall& call) const;
  int64_t num_tokens() const override { return num_tokens_; }
  int64_t num_samples() const { return num_samples_; }
  void request(const ObservationRequest& request) override;
  void show_hidden(HiddenSink* sink) override { hidden_sink_ = sink; }
  void restore_hidden(int64_t next_layer, const HiddenSource& source) override;

  /// observer gets every Linear's input in the layers that run from now on.
  void observe_linear_inputs(LinearInputObserver observer);

 private:
  struct SampleBatch {
    TokenBatch tokens;
    int64_t first_token = 0, first_sample = 0;
  };
  /// Rows of a draft layer: its batches, and buffers for its input of one batch, 6 · hidden floats
  /// a token (memory_plan.cc).
  struct DraftRows {
    struct Batch {
      TokenBatch tokens;
      Buffer sources;  ///< int32 [tokens]: rows of the batch's residual stream; none without tokens
    };
    std::vector<std::unique_ptr<EmbeddedTokens>> embedded;  ///< of the batches' samples
    std::vector<Batch> batches;
    PositionPieces pieces;
    Buffer rows, normed;  ///< [tokens, hidden]
    Buffer both, input;   ///< [tokens, 2 * hidden], float32 and of the compute type
    ProductScratch scratch;
  };

  /// finishes: also runs the rest of the layer, whose attention reads unquantized K and V.
  LayerObservation observe_layer(const PackedLayer& packed, bool finishes);
  /// quantization null: attention reads unquantized K and V.
  LayerAdvance advance_layer(const PackedLayer& packed, const KvQuantization* quantization);
  LinearObservation observe_final_norm();
  AttentionComparison compare(const PackedLayer& packed,
                              std::span<const KvQuantization> candidates);
  /// Room for a batch's K and V in the layer, whose queries may be quantized without a cache of
  /// its own; null: unquantized.
  KvBuffers make_storage(const KvQuantization* quantization) const;
  PassObservers make_observers() const;

  void make_batches(std::span<const std::span<const TokenId>> samples,
                    const LayerwiseOptions& options, const std::vector<int64_t>& lengths,
                    int64_t batch_tokens);
  void embed(const MemoryPlan& plan);
  /// Puts the rows of images into the residual stream of a batch, or adds what they give behind the
  /// layer that ran.
  void put_images(const TokenBatch& tokens, float* hidden);
  void inject_images(const TokenBatch& tokens, float* hidden);
  /// The batches of a draft layer: all tokens of each sample but the last, with the ids of the next
  /// ones.
  void make_draft_batches();
  /// The tokens of a batch that a layer runs, and their rows of its input.
  struct BatchInput {
    const TokenBatch& tokens;
    float* hidden;
  };
  BatchInput input_of(const PackedLayer& layer, size_t batch, float* hidden);
  /// The draft layer's input for a batch, whose rows of the residual stream are gathered.
  float* make_draft_input(const PackedDraftInput& draft, const TokenBatch& tokens);
  /// resident: the embedding's table in the backend's memory, or null.
  void embed(std::span<const TokenId> ids, std::span<const int32_t> positions, float* hidden,
             const std::byte* resident = nullptr);
  std::vector<LinearObservation> take_linears();
  /// Gives later inputs to linears (null: to nothing) and to the observer of observe_linear_inputs.
  void show_linears(LinearCollector* linears);
  /// Share of a layer's work that one pass counts for in the progress.
  enum class Share { kFirstHalf, kSecondHalf, kWhole, kNone };
  void report(const SampleBatch& batch, Share share);
  /// Treatment of K and V in one pass over a layer.
  struct Pass {
    PassObservers* observers = nullptr;
    const KvBuffers* storage = nullptr;
    bool finishes = false;  ///< runs the rest of the layer, whose attention reads storage
    bool keeps = false;     ///< keeps K, V and their input for a later pass that finishes the layer
    bool compares = false;  ///< keeps what compare_attention needs
  };
  /// The buffers of a batch where the pass keeps what it makes, or an earlier one has; null: there
  /// is none, or no room.
  LayerRunner::BatchKeysValues* kept_of(size_t batch, const Pass& pass);
  KeysValues keys_values(const float* hidden, const Pass& pass, LayerRunner::BatchKeysValues* kept);
  void run_batches(const PackedLayer& layer, Share share, const Pass& pass);
  void run_batch(const PackedLayer& layer, size_t index, float* hidden, const Pass& pass);
  /// Observes and stores K and V of a batch as the pass wants.
  void enter_cache(const KeysValues& made, const TokenBatch& tokens, size_t batch,
                   const Pass& pass);
  /// Gives the runner the layer's own inputs of the batch, where layers have them.
  void give_inputs(const SampleBatch& batch);
  /// A part of a batch's hidden states, [tokens, width] from first · tokens on: the residual
  /// stream, K or V of a layer that later layers read, or the keys that an indexer selected.
  struct Plane {
    int64_t layer = -1;  ///< -1: a residual stream
    bool is_value = false, is_selection = false;
    int64_t first = 0, width = 0;
  };
  static std::vector<Plane> planes_of(const ModelConfig& config, int64_t longest_sample);
  const Plane& plane_of(int64_t layer, bool is_value) const;
  /// What attention of the layer reads, given the pass's storage: the K and V of another layer
  /// where it has none of its own, and the plane of the selection where layers share selections.
  /// Keeps K and V of a batch beside its residual stream where later layers read them.
  KvView storage_for(const SampleBatch& batch, KvView storage, float* hidden) const;
  /// Copies between a batch's planes and the rows of its samples one after the other, on the host.
  void copy_planes(const SampleBatch& batch, float* planes, float* by_sample,
                   bool to_samples) const;
  /// Calls body with each sample of the batch and its rows of hidden.
  template <class Body>
  void for_each_sample(const SampleBatch& batch, float* hidden, const Body& body) const;
  void show_hidden(const SampleBatch& batch, float* hidden);
  void release_hidden(const SampleBatch& batch);

  const ModelConfig& config_;
  const Weights& weights_;
  Backend& backend_;
  Diagnostics& diagnostics_;
  ComputeType type_;
  LayerBytes* layer_bytes_;  ///< null: mapped files
  const int64_t longest_sample_;
  int64_t num_tokens_ = 0, num_samples_ = 0, longest_batch_ = 0;
  std::vector<SampleBatch> batches_;
  PositionPieces pieces_;
  RopeTables ropes_;
  std::unique_ptr<PackGroup> group_;  ///< of the backend alone, for what is outside of the layers
  PackedEmbedding embedding_;
  std::unique_ptr<LayerRunner> runner_;
  ObservationRequest request_;
  std::unique_ptr<LinearCollector> linears_;  ///< null: not requested
  LinearInputObserver linear_observer_;       ///< empty: none
  int64_t batch_sample_ = 0;                  ///< first of the batch that runs
  int64_t layer_ = -1;                        ///< the last one that ran; -1: none
  int64_t advanced_layers_ = 0;
  HiddenSink* hidden_sink_ = nullptr;  ///< null: hidden states are not shown
  HiddenSink* hidden_user_ = nullptr;  ///< sink that got rows and may still read them
  std::vector<Plane> planes_;          ///< of hidden_, the residual stream first
  std::optional<HiddenStates> hidden_;
  std::vector<LayerRunner::BatchKeysValues> kept_;  ///< of the first batches, while there is room
  uint64_t room_to_keep_ = 0;                       ///< bytes of backend memory
  Buffer embedded_, input_rows_;    ///< of a batch, where layers have inputs of their own
  std::optional<DraftRows> draft_;  ///< nullopt: no draft layer
  std::unique_ptr<ComparedAttention> compared_;  ///< null: no attention is compared
  std::optional<LayerPrefetch> layers_;  ///< of calls without a layer, from the first one on
};

}  // namespace kvcal
