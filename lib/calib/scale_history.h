#pragma once

#include <optional>
#include <vector>

#include "quant/calibration.h"
#include "quant/stop_rule.h"

namespace kvcal {

/// How far the scales of a growing number of samples have moved.
class ScaleHistory {
 public:
  explicit ScaleHistory(const StopRule& rule) : rule_(rule) {}

  /// The scales of the first num_samples samples, which are more than those before. All are of one
  /// plan; static inputs of the plan without a scale have none yet.
  void add(int64_t num_samples, const Calibration& calibration);

  /// The largest move from the last scales that are a window or more older than the newest;
  /// nullopt: there are none so old. A scale that one of them lacks has moved the most.
  std::optional<ScaleMove> largest_move() const;
  /// Whether it keeps the rule's ratio.
  bool is_stable() const;

 private:
  struct PlacedScale {
    ScaleMove place;  ///< without num_samples and ratio
    std::optional<Scale> scale;
  };
  struct Snapshot {
    int64_t num_samples = 0;
    std::vector<PlacedScale> scales;
  };
  static std::vector<PlacedScale> scales_of(const Calibration& calibration);
  const Snapshot* window_before() const;

  StopRule rule_;
  std::vector<Snapshot> snapshots_;  ///< those that may still be compared with, and the newest
};

}  // namespace kvcal
