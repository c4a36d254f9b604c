#pragma once

namespace kvcal {

/// What a setting of an observer may be: from low, which may be taken itself, to high. Recipes are
/// checked against these when they are read, and what observers are given again when they start.
struct SettingRange {
  double low = 0.0, high = 1.0;
  bool is_low_taken = false;

  constexpr bool contains(double value) const {
    return (is_low_taken ? value >= low : value > low) && value <= high;
  }
};

constexpr SettingRange kPercentiles{.high = 100};
// Of the search of mse. The upper bounds let it end.
constexpr SettingRange kMaxshrinks{};
constexpr SettingRange kGrids{.low = 1, .high = 100'000, .is_low_taken = true};
constexpr SettingRange kNorms{.high = 100};
constexpr SettingRange kPatiences{.low = 1, .high = 1'000'000, .is_low_taken = true};
constexpr SettingRange kExpands{.low = 1, .high = 100, .is_low_taken = true};

}  // namespace kvcal
