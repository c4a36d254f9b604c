#pragma once

#include <cstdint>

namespace kvcal {

/// How much is kept of Linears' inputs.
enum class LinearDetail : uint8_t {
  kNone,
  kAmax,    ///< the largest magnitude; costs next to nothing
  kSamples  ///< extremes of every sample and a histogram of all
};

/// Tensors that a forward pass observes beside K and V.
struct ObservationRequest {
  bool query = false;  ///< Q after its norm and RoPE, of every head
  bool head = false;   ///< the input of lm_head
  /// Experts' inputs are those of all tokens, not of the tokens routed to them; what the layer
  /// computes stays as it is.
  bool all_experts = false;
  LinearDetail linears = LinearDetail::kNone;

  /// Layers run to their end, also those behind the last K and V.
  bool finishes_layers() const { return head || linears != LinearDetail::kNone; }
  /// Detail with which the input of lm_head is observed; never none.
  LinearDetail head_detail() const {
    return linears == LinearDetail::kNone ? LinearDetail::kSamples : linears;
  }
};

}  // namespace kvcal
