#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "forward/hidden_exchange.h"
#include "forward/linear_observation.h"
#include "forward/observation_request.h"
#include "quant/attention_error.h"
#include "quant/calibration.h"
#include "quant/channel_amax.h"
#include "quant/key_rows.h"

namespace kvcal {

/// Ranges and magnitudes of the heads of K, V or Q of one layer. ranges are [samples, heads].
struct KvObservation {
  std::vector<ObservedRange> ranges;
  std::vector<MagnitudeHistogram> histograms;  ///< [heads]
  /// Extremes of all samples and heads by bucket of positions (quant/observations.h), as many
  /// as the longest sample has; of K and V only.
  std::vector<Range> positions = {};
};
/// Observations of one pass over a layer.
struct LayerObservation {
  KvObservation k, v;                           ///< of the layer's cache
  std::optional<KvObservation> q = {};          ///< of each head, where requested
  std::optional<ChannelAmax> channels = {};     ///< where requested
  std::vector<KeyRows> key_rows = {};           ///< [samples], where requested
  std::vector<LinearObservation> linears = {};  ///< where requested, in a pass that ends the layer
};

/// Storage of K and V for attention: one scale a head of the layer's cache.
struct KvQuantization {
  KvDType dtype = KvDType::kFp8E4m3;
  std::vector<float> k_scales, v_scales;
  /// [heads of Q] of queries in FP8 of the same dtype; empty: attention reads them as they
  /// are.
  std::vector<float> q_scales = {};
};

/// Values that were clipped while stored, summed over heads.
struct SaturationCounts {
  uint64_t k = 0, v = 0;
  uint64_t q = 0;  ///< of queries that attention read in FP8
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
