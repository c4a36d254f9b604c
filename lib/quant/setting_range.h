#pragma once

#include "core/value_range.h"

namespace kvcal {

// Ranges of observers' settings. Checked when a recipe is read, and again when an observer is made.

/// Of a setting that names no other: parts of a whole.
constexpr NumberRange kParts{.most = 1, .is_above = true};
constexpr NumberRange kPercentiles{.most = 100, .is_above = true};
// Settings of the mse search. The upper bounds guarantee that it ends.
constexpr NumberRange kMaxshrinks = kParts;
constexpr NumberRange kGrids{.least = 1, .most = 100'000};
constexpr NumberRange kNorms{.most = 100, .is_above = true};
constexpr NumberRange kPatiences{.least = 1, .most = 1'000'000};
constexpr NumberRange kExpands{.least = 1, .most = 100};

}  // namespace kvcal
