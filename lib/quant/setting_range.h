#pragma once

namespace kvcal {

/// The values that a setting of an observer may have: from low (is_low_taken: inclusive) to high.
/// Recipes are checked against them when they are read, and observers check them again when they
/// start.
struct SettingRange {
  double low = 0.0, high = 1.0;
  bool is_low_taken = false;

  constexpr bool contains(double value) const {
    return (is_low_taken ? value >= low : value > low) && value <= high;
  }
};

constexpr SettingRange kPercentiles{.high = 100};
// Settings of the mse search. The upper bounds let it end.
constexpr SettingRange kMaxshrinks{};
constexpr SettingRange kGrids{.low = 1, .high = 100'000, .is_low_taken = true};
constexpr SettingRange kNorms{.high = 100};
constexpr SettingRange kPatiences{.low = 1, .high = 1'000'000, .is_low_taken = true};
constexpr SettingRange kExpands{.low = 1, .high = 100, .is_low_taken = true};

}  // namespace kvcal
