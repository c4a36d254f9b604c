#pragma once

#include <cstdint>
#include <optional>

#include "family/model_config.h"

namespace kvcal {

/// Level of detail for inputs of Linears.
enum class LinearDetail : uint8_t {
  kNone,
  kAmax,    ///< the largest magnitude; almost free
  kSamples  ///< extremes of every sample and one histogram
};

/// Tensors that a forward pass observes beside K and V.
struct ObservationRequest {
  bool query = false;     ///< Q after its norm and RoPE, of every head
  bool channels = false;  ///< each channel of K after RoPE, and of V
  int64_t key_rows = 0;   ///< rows of K of each sample to keep, beside channels
  bool head = false;      ///< the input of lm_head
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

}  // namespace kvcal
