#pragma once

#include "backend/backend.h"

namespace kvcal {

/// Quantizes queries to the cache's FP8 type with one scale a head, and dequantizes them in place,
/// as an engine with FP8 attention does.
struct QueryQuantizationArgs {
  HeadsView q;  ///< contiguous rows
  KvDType dtype = KvDType::kFp8E4m3;
  const float* scales = nullptr;  ///< [heads], backend memory
  uint8_t* codes = nullptr;       ///< scratch [tokens, heads, head_dim], backend memory
  uint64_t* saturated = nullptr;  ///< [heads] counts of clipped values to add to, or null
};
void quantize_query(Backend& backend, const QueryQuantizationArgs& args);

}  // namespace kvcal
