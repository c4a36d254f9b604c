// A forward pass is wrapped, not rewritten. LayerForward is a handful of calls a layer.
// DividedForward makes them on several devices, RankedForward on several machines, and both
// merge the results; ResumableForward records the results and replays them. calibrate knows none
// of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "family/model_config.h"
#include "family/roles.h"
#include "quant/cache_type.h"
#include "quant/calibration.h"
#include "quant/damage_verdict.h"
#include "quant/observations.h"
#include "quant/scale.h"

namespace kvcal {

/// Level of detail for inputs of Linears.
enum class LinearDetail : uint8_t {
  kNone,
  kAmax,    ///< the largest magnitude; almost free
  kSamples  ///< extremes of every sample and one histogram
};

/// Tensors that a forward pass observes beside K and V.
struct ObservationRequest {
  bool query = false;           ///< Q after its norm and RoPE, of every head
  bool channels = false;        ///< each channel of K after RoPE, and of V
  int64_t key_rows = 0;         ///< rows of K of each sample to keep, beside channels
  bool channel_ranges = false;  ///< the extremes of each channel in each sample
  bool head = false;            ///< the input of lm_head
  /// Observes experts on all tokens instead of the routed ones; the layer's results do not change.
  bool all_experts = false;
  LinearDetail linears = LinearDetail::kNone;
  /// Samples, from the first on, of which LayerForward::compare_attention compares attention: 0 in
  /// a part of a run that has none of them, which packs the same layers all the same. nullopt: no
  /// attention is compared.
  std::optional<int64_t> compared_samples = {};
  /// Passes that observe keep what compare_attention needs, too: scales are chosen by it before
  /// the layer is advanced.
  bool compares_first = false;

  /// Whether the attention of the layer is compared: it has a cache of its own, and is no draft
  /// layer, of which K and V alone are run.
  bool compares(int64_t layer, const ModelConfig& config) const {
    return compared_samples.has_value() && config.has_own_cache(layer) && !config.is_draft(layer);
  }
  /// Layers run to their end, also those after the last K and V.
  bool finishes_layers() const { return head || linears != LinearDetail::kNone; }
  /// The last layer of which anything is observed.
  int64_t last_layer(const ModelConfig& config) const {
    if (config.has_draft()) return config.num_layers() - 1;
    if (finishes_layers()) return config.num_hidden_layers - 1;
    return query ? config.last_attention_layer() : config.last_cached_layer();
  }
  /// Whether the pass over the layer only observes.
  bool ends_with(int64_t layer, const ModelConfig& config) const {
    return config.is_draft(layer) || (layer == last_layer(config) && !finishes_layers());
  }
  /// Detail for the input of lm_head; never kNone.
  LinearDetail head_detail() const {
    return linears == LinearDetail::kNone ? LinearDetail::kSamples : linears;
  }
};

/// Observation of one Linear's input.
struct LinearObservation {
  Role role{};
  int64_t index = 0;  ///< of an expert
  Amax amax = {};     ///< over finite values
  uint64_t nonfinite = 0, tokens = 0;
  // With LinearDetail::kSamples:
  /// [samples]; a sample without a token has an empty range (ObservedRange). For an expert,
  /// first_nonfinite counts only the sample's tokens that were routed to it.
  std::vector<ObservedRange> ranges = {};
  MagnitudeHistogram histogram = {};
};

/// Ranges and magnitudes of the heads of K, V or Q of one layer. ranges are [samples, heads].
struct KvObservation {
  std::vector<ObservedRange> ranges;
  std::vector<MagnitudeHistogram> histograms;  ///< [heads]
  /// Extremes of all samples and heads by bucket of positions (quant/observations.h), as many
  /// as the longest sample has; of K and V only.
  std::vector<Range> positions = {};
  /// Extremes of all samples and heads, of tokens of text, then of images; empty: all are text.
  std::vector<Range> kinds = {};
  /// [samples, channels], of K and V where requested.
  std::vector<ObservedRange> channels = {};
};
/// Observations of one pass over a layer.
struct LayerObservation {
  KvObservation k, v;                           ///< of the layer's cache
  std::optional<KvObservation> q = {};          ///< of each head, where requested
  std::optional<ChannelAmax> channels = {};     ///< where requested
  std::vector<KeyRows> key_rows = {};           ///< [samples], where requested
  std::vector<LinearObservation> linears = {};  ///< where requested, in a pass that ends the layer
};

/// Storage of K and V for attention: one scale a head of the layer's cache, or of INT8 one a
/// channel.
struct KvQuantization {
  CacheType type = KvDType::kFp8E4m3;
  std::vector<float> k_scales, v_scales;
  /// [heads of Q] of queries in FP8 of the same dtype; empty: attention reads them as they
  /// are.
  std::vector<float> q_scales = {};
};

/// Values that were clipped while stored, summed over heads.
struct SaturationCounts {
  uint64_t k = 0, v = 0;
  uint64_t q = 0;  ///< of queries that attention read in FP8

  void add(const SaturationCounts& more) {
    k += more.k;
    v += more.v;
    q += more.q;
  }
};
struct LayerAdvance {
  SaturationCounts saturated = {};
  std::vector<LinearObservation> linears = {};  ///< where requested
};

/// Attention of a layer over quantized K and V beside attention over unquantized ones, by sample:
/// [compared samples][candidates][heads of Q].
struct AttentionComparison {
  std::vector<std::vector<std::vector<AttentionError>>> samples;

  /// Sums over the samples, [heads].
  std::vector<AttentionError> of(size_t candidate) const {
    std::vector<AttentionError> sum;
    for (const auto& sample : samples) {
      sum.resize(sample[candidate].size());
      for (size_t head = 0; head < sum.size(); ++head) sum[head].add(sample[candidate][head]);
    }
    return sum;
  }
};

/// Receives the hidden states of samples after a layer. Threads of the forward pass call it, for
/// different samples at the same time.
class HiddenSink {
 public:
  virtual ~HiddenSink() = default;
  /// rows: [tokens, ModelConfig::carried_width] floats of one sample, in host memory. owner keeps
  /// them alive; with a null owner they stay valid until release of the sample has returned.
  virtual void put(int64_t sample, std::span<const float> rows,
                   std::shared_ptr<const void> owner) = 0;
  /// Called before rows without an owner change; returns when nobody reads them any longer.
  virtual void release(int64_t sample) = 0;
};

/// Fills rows, [tokens, carried_width] float32, with the stored rows of the sample. Throws Error
/// where they are not available.
using HiddenSource = std::function<void(int64_t sample, std::span<float> rows)>;

/// Passes samples on to another sink under other numbers: those of the whole run instead of those
/// of one part.
class RenumberedSink : public HiddenSink {
 public:
  /// number: maps a sample to its number in sink. Borrows the sink.
  RenumberedSink(HiddenSink& sink, std::function<int64_t(int64_t)> number)
      : sink_(sink), number_(std::move(number)) {}
  void put(int64_t sample, std::span<const float> rows,
           std::shared_ptr<const void> owner) override {
    sink_.put(number_(sample), rows, std::move(owner));
  }
  void release(int64_t sample) override { sink_.release(number_(sample)); }

 private:
  HiddenSink& sink_;
  std::function<int64_t(int64_t)> number_;
};

/// One call of a LayerForward.
enum class LayerPass {
  kObserve,
  kCountSaturated,
  kAdvance,
  kAdvanceExact,
  kAdvanceWithoutAttention,
  kObserveAndAdvanceExact,
  kObserveHead,
  kCompareAttention,
};
struct LayerCall {
  LayerPass pass{};
  int64_t layer = -1;                               ///< -1: none, of kObserveHead
  const KvQuantization* quantization = nullptr;     ///< of kCountSaturated and kAdvance; borrowed
  std::span<const KvQuantization> candidates = {};  ///< of kCompareAttention
};
using LayerResult = std::variant<LayerObservation, LayerAdvance, LinearObservation,
                                 SaturationCounts, AttentionComparison>;

/// Serializes the result of a pass over a layer, for other machines and for files: little-endian,
/// after a version and a kind. Equal values give equal bytes.
std::vector<std::byte> to_bytes(const LayerResult& result);

/// Inverse of to_bytes, of the result of such a pass, for untrusted bytes. Checks every count
/// against the size, every value against its possible range, and the order of Linears. Throws Error
/// with what was found and where. The caller must check the numbers of samples and heads.
LayerResult layer_result_from(LayerPass pass, std::span<const std::byte> bytes);

/// Forward pass of many samples with the layer as the outer loop. For each layer in order, call
/// observe and then one advance.
class LayerForward {
 public:
  virtual ~LayerForward() = default;

  /// Chooses the tensors to observe beside K and V. Call before the first pass. Default: none.
  virtual void request(const ObservationRequest& request) = 0;

  /// Observes K after RoPE and V of every sample, unquantized, and Q after RoPE.
  LayerObservation observe(int64_t layer) {
    return std::get<LayerObservation>(run({LayerPass::kObserve, layer}));
  }
  /// Counts the clipped values of K and V, not Q. Call before the layer is advanced.
  SaturationCounts count_saturated(int64_t layer, const KvQuantization& quantization) {
    return std::get<SaturationCounts>(run({LayerPass::kCountSaturated, layer, &quantization}));
  }
  /// Runs the rest of the layer; attention reads K, V and Q as quantization stores them.
  LayerAdvance advance(int64_t layer, const KvQuantization& quantization) {
    return std::get<LayerAdvance>(run({LayerPass::kAdvance, layer, &quantization}));
  }
  /// Runs the rest of the layer; attention reads unquantized K and V.
  LayerAdvance advance_exact(int64_t layer) {
    return std::get<LayerAdvance>(run({LayerPass::kAdvanceExact, layer}));
  }
  /// Runs a layer without attention.
  LayerAdvance advance_without_attention(int64_t layer) {
    return std::get<LayerAdvance>(run({LayerPass::kAdvanceWithoutAttention, layer}));
  }
  /// observe and advance_exact in one pass.
  LayerObservation observe_and_advance_exact(int64_t layer) {
    return std::get<LayerObservation>(run({LayerPass::kObserveAndAdvanceExact, layer}));
  }
  /// Compares attention over K and V quantized as each candidate does, with scale 1 or others, in
  /// the samples that the request names. Call after the last pass over a layer with a cache of its
  /// own, or with compares_first after one that observes: it needs what that pass has kept.
  AttentionComparison compare_attention(int64_t layer, std::span<const KvQuantization> candidates) {
    return std::get<AttentionComparison>(
        run({.pass = LayerPass::kCompareAttention, .layer = layer, .candidates = candidates}));
  }
  /// Observes the input of lm_head. Call after the last layer of the model has advanced.
  LinearObservation observe_head() {
    return std::get<LinearObservation>(run({LayerPass::kObserveHead}));
  }

  /// Performs any of the calls above; the result has the type that the call returns. Decorators
  /// override it.
  virtual LayerResult run(const LayerCall& call) = 0;

  virtual int64_t num_tokens() const = 0;

  /// The passes that end a layer show sink, borrowed, what they leave, from now on; null: no
  /// longer.
  virtual void show_hidden(HiddenSink* sink) = 0;
  /// In place of the layers before next_layer, which is the first that runs: their hidden states.
  /// Before the first pass.
  virtual void restore_hidden(int64_t next_layer, const HiddenSource& source) = 0;
};

}  // namespace kvcal
