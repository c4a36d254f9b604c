#pragma once

#include <span>

namespace kvcal {

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

}  // namespace kvcal
