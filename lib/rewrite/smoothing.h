#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/channel_amax.h"
#include "rewrite/alignment.h"
#include "rewrite/kv_factors.h"
#include "stored/smoothed_for.h"

namespace kvcal {

/// How uneven the channels of K or V are: the largest of a head over the mean of its channels, the
/// median of all heads of all layers. 1: all channels of a head reach as far.
struct Unevenness {
  double before = 1.0, after = 1.0;
};

struct Smoothing {
  KvFactors factors;
  /// Nullopt: the family cannot have factors, and reason says why.
  std::optional<Unevenness> k = {}, v = {};
  std::string k_reason = {}, v_reason = {};
  std::map<int64_t, LayerAlignment> aligned = {};  ///< layers that changed, for an FP8 cache
};

/// Throws Error naming the family where neither K nor V can have factors.
void check_can_be_smoothed(const ModelConfig& config);

/// Factors that make all channels of a layer's K, and of its V, reach as far: above half of the
/// largest, by powers of two, while the median channel stays. That is what a cache with uniform
/// codes reads best, whether it has a scale a layer, a head, or a token and head. The channels that
/// RoPE turns together have one factor, and all heads have the same where one norm weight serves
/// them. Channels of zeros have factors that change nothing; those 2^20 times smaller than the
/// largest grow no more than that. amax: one entry a layer. Throws Error as check_can_be_smoothed
/// does.
Smoothing smoothing_of(const ModelConfig& config, std::span<const ChannelAmax> amax);

}  // namespace kvcal
