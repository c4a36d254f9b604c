#pragma once

#include "backend/backend.h"

namespace kvcal {

/// Queries as an engine with FP8 attention reads them: rounded to the cache's FP8 type with a scale
/// a head, and back, in place.
struct QueryQuantizationArgs {
  HeadsView q;  ///< rows follow each other
  KvDType dtype = KvDType::kFp8E4m3;
  const float* scales = nullptr;  ///< [heads], backend memory
  uint8_t* codes = nullptr;       ///< scratch [tokens, heads, head_dim], backend memory
  uint64_t* saturated = nullptr;  ///< [heads] counts of clipped values to add to, or null
};
void quantize_query(Backend& backend, const QueryQuantizationArgs& args);

}  // namespace kvcal
