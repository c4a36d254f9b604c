#pragma once

#include "backend/backend.h"

namespace kvcal {

/// Queries as an engine with FP8 attention reads them: rounded to FP8 E4M3 with a scale a head, and
/// back, in place.
struct QueryQuantizationArgs {
  HeadsView q;                    ///< rows follow each other
  const float* scales = nullptr;  ///< [heads], backend memory
  Buffer* codes = nullptr;        ///< scratch, made larger where it must be
};
void quantize_query(Backend& backend, const QueryQuantizationArgs& args);

}  // namespace kvcal
