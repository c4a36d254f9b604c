#pragma once

#include <optional>
#include <vector>

#include "run/loaded_model.h"
#include "sweep/sweep_folder.h"
#include "sweep_inputs.h"

namespace kvcal {

/// The weights that cells run, their model's own or those a calibration made, and the scales of
/// their caches. The calibrations are there.
class CellWeights {
 public:
  /// cell: any of them.
  CellWeights(const SweepOptions& options, const Sweep& sweep, const SweepFolder& folder,
              Backend& backend, const Cell& cell, bool has_tokenizer, Diagnostics& diagnostics);

  LoadedModel& model() { return model_; }
  /// As Decoder::make_cache wants them. Throws Error where they cannot be had.
  std::vector<LayerKvScales> scales_of(const Cell& cell) const;

 private:
  const Sweep& sweep_;
  const SweepFolder& folder_;
  Diagnostics& diagnostics_;
  LoadedModel model_;
};

}  // namespace kvcal
