#pragma once

#include <optional>
#include <vector>

#include "quant/scale.h"

namespace kvcal {

/// Scales of one layer's cache: one value, or one a KV head. An ignored layer has none and keeps an
/// unquantized cache.
struct LayerKvScales {
  std::vector<Scale> k, v;
  bool ignored = false;
  /// Scales of queries, which FP8 E4M3 attention reads with the cache's dtype: one value, or one an
  /// attention head; empty: queries are not quantized.
  std::vector<Scale> q = {};
  /// Scale of softmax weights that FP8 E4M3 attention rounds; nullopt: they are not rounded.
  std::optional<Scale> weights = {};
};

}  // namespace kvcal
