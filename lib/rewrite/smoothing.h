#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/observations.h"
#include "rewrite/kv_factors.h"
#include "stored/kv_scales.h"

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

/// A turn of a pair of K's channels, or a single channel, and what is then done to it.
struct UnitChange {
  double angle = 0.0;   ///< radians; 0 for a single channel
  float factor = 1.0f;  ///< of both channels, behind the turn
  float offset = 0.0f;  ///< added before the factor, of a single channel
};

/// Error that an E4M3 cache makes in one unit of a head's K, seen by a query that every direction
/// of the unit hits alike: the variance over the rows of what the cache changes, in units of the K
/// that the model has now. An error that all keys share costs nothing, as a softmax ignores it.
/// first, second: the unit's cached channels by row; second is empty for a single channel. scales:
/// of the cache, at least one; their errors are added.
double key_error(std::span<const float> first, std::span<const float> second,
                 const UnitChange& change, std::span<const float> scales);

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
