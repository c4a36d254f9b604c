#pragma once

#include <vector>

#include "forward/layerwise.h"
#include "forward/linear_product.h"

namespace kvcal {

/// Rows of a draft layer: its batches, and buffers for its input of one batch, 6 · hidden floats a
/// token (memory_plan.cc).
struct LayerwiseForward::DraftRows {
  struct Batch {
    TokenBatch tokens;
    Buffer sources;  ///< int32 [tokens]: rows of the batch's residual stream; none without tokens
  };
  std::vector<Batch> batches;
  PositionPieces pieces;
  Buffer rows, normed;  ///< [tokens, hidden]
  Buffer both, input;   ///< [tokens, 2 * hidden], float32 and of the compute type
  ProductScratch scratch;
};

}  // namespace kvcal
