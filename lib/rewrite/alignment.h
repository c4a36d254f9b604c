#pragma once

#include <span>

#include "quant/channel_amax.h"
#include "quant/key_rows.h"
#include "rewrite/kv_factors.h"

namespace kvcal {

/// What alignment does to one layer's K.
struct LayerAlignment {
  LayerFactors factors;
  int64_t turned = 0;   ///< pairs of all KV heads that are turned
  int64_t scaled = 0;   ///< pairs and single channels with another factor
  int64_t shifted = 0;  ///< single channels without their mean
  /// Sums of key_error over all units, as the model is and as it becomes.
  double error_before = 0.0, error_after = 0.0;

  int64_t changed() const { return turned + scaled + shifted; }
};

/// Throws Error naming the family where K can neither be turned nor have factors.
void check_can_be_aligned(const ModelConfig& config);

/// Turns and factors that let an E4M3 cache of one scale, 1.0 or calibrated from the largest K,
/// lose least of a layer's K. A pair of channels whose constant part is large against what varies
/// is turned until the constant part lies on one channel, and gets the factor that brings it to
/// where its codes stay the same: what varies is then read from the other channel. Channels that do
/// not turn lose their mean where a bias can take it. Other units, and those that gain less than
/// half of their error, stay. samples: rows of the layer's K; amax: of all of its tokens. Throws
/// Error as check_can_be_aligned does.
LayerAlignment align_layer(const ModelConfig& config, int64_t layer,
                           std::span<const KeyRows> samples, const ChannelAmax& amax);

}  // namespace kvcal
