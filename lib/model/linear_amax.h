#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/model_config.h"
#include "model/tensor_rows.h"
#include "quant/scale.h"

namespace kvcal {

/// Largest finite magnitude of the input that the Linears of a role share (see LinearInput).
struct LinearAmax {
  Role role{};
  int64_t index = 0;  ///< of an expert
  Amax amax;
  uint64_t nonfinite = 0;  ///< NaN and Inf among them
};

/// Folds other, of other samples, into amaxes; both by role, then index.
void merge_linear_amax(std::vector<LinearAmax>& amaxes, const std::vector<LinearAmax>& other);

/// Slots in backend memory for the inputs of one layer's Linears, read once a layer. Borrows the
/// backend.
class LinearAmaxSlots {
 public:
  LinearAmaxSlots(const ModelConfig& config, Backend& backend);

  /// The input's slot; the first time, an empty one.
  AmaxSlot slot(Role role, int64_t index);
  /// What was asked for since the last call, by role, then index.
  std::vector<LinearAmax> take();

 private:
  Backend& backend_;
  int64_t capacity_;
  Buffer amax_, nonfinite_;  ///< [capacity_] float32 and uint64
  std::map<std::pair<Role, int64_t>, int64_t> places_;
};

}  // namespace kvcal
