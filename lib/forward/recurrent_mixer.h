#pragma once

#include <span>

#include "forward/layer_context.h"

namespace kvcal {

/// Recurrent mixer of a layer, up to its output projection: Mamba 1 or 2, the gated delta net, or
/// the short convolution. Its steps make mixed_in, convolved, scanned and mixed.
class RecurrentMixer : private LayerPart {
 public:
  explicit RecurrentMixer(LayerContext& context) : LayerPart(context) {}

  /// Writes the mix of hidden to mixed; hidden null: of the input that normed holds. states
  /// continue the batch's sequences; null: all begin.
  void run(const float* hidden, const LayerStates* states);

 private:
  const PackedRecurrence& mixer() const { return layer().recurrence; }
  /// Columns of the input projection from first on.
  RowsView projected(int64_t first) const;
  void gate_before_convolution();
  void convolve_channels(const SlotRun& run);
  void scan(std::span<const SlotRun> runs);
  void project_mamba();
  /// Mamba 1 or 2.
  void scan_states(const SlotRun& run);
  void scan_delta(const SlotRun& run);
  /// Projects rows of a low rank, the input of the Linear with this role, to steps.
  void project_low(Role role, RowsView low, int64_t rank, const PackedLinear& linear);
  void gate_scanned();
  float* state_of(Buffer LayerStates::*part, const SlotRun& run) const {
    return states_ ? states_->of(part, run.first_slot) : nullptr;
  }

  const LayerStates* states_ = nullptr;  ///< while it runs
};

}  // namespace kvcal
