#pragma once

#include <vector>

#include "quant/scale.h"

namespace kvcal {

/// Scales of one layer's cache: one value, or one a KV head. An ignored layer has none and keeps an
/// unquantized cache.
struct LayerKvScales {
  std::vector<Scale> k, v;
  bool ignored = false;
  /// Scales of queries that attention reads in FP8 E4M3, as the cache is: one value, or one an
  /// attention head; empty: they are not quantized.
  std::vector<Scale> q = {};
};

}  // namespace kvcal
