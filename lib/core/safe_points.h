#pragma once

#include <cstddef>

#include "core/interrupt.h"

namespace kvcal {

/// Safe points of a loop whose length a file chooses, once in so many steps that they cost nothing:
/// an interrupt ends it soon.
class SafePoints {
 public:
  explicit SafePoints(size_t steps_together = size_t{1} << 14) : steps_together_(steps_together) {}
  /// Passes so many steps. Throws as throw_if_interrupted.
  void pass(size_t steps = 1) {
    steps_ += steps;
    if (steps_ < steps_together_) return;
    steps_ = 0;
    throw_if_interrupted();
  }

 private:
  size_t steps_together_, steps_ = 0;
};

}  // namespace kvcal
