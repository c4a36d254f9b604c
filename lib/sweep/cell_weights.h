#pragma once

#include <vector>

#include "run/loaded_model.h"
#include "sweep/task_context.h"

namespace kvcal {

/// The weights that cells run, their model's own or those of a calibration, and the scales of their
/// caches. The calibrations exist.
class CellWeights {
 public:
  /// cell: any of the cells.
  CellWeights(const TaskContext& context, const Cell& cell, bool has_tokenizer);

  LoadedModel& model() { return model_; }
  /// The scales as Decoder::make_cache takes them. Throws Error where the cell's source has none.
  std::vector<LayerKvScales> scales_of(const Cell& cell) const;

 private:
  const TaskContext& context_;
  LoadedModel model_;
};

}  // namespace kvcal
