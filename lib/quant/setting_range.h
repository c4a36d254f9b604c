#pragma once

namespace kvcal {

/// Range of an observer's setting: from low (is_low_taken: inclusive) to high. Checked when a
/// recipe is read, and again when an observer is made.
struct SettingRange {
  double low = 0.0, high = 1.0;
  bool is_low_taken = false;

  constexpr bool contains(double value) const {
    return (is_low_taken ? value >= low : value > low) && value <= high;
  }
};

constexpr SettingRange kPercentiles{.high = 100};
// Settings of the mse search. The upper bounds guarantee that it ends.
constexpr SettingRange kMaxshrinks{};
constexpr SettingRange kGrids{.low = 1, .high = 100'000, .is_low_taken = true};
constexpr SettingRange kNorms{.high = 100};
constexpr SettingRange kPatiences{.low = 1, .high = 1'000'000, .is_low_taken = true};
constexpr SettingRange kExpands{.low = 1, .high = 100, .is_low_taken = true};

}  // namespace kvcal
