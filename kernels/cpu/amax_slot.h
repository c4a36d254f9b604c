#pragma once

#include <atomic>
#include <cstdint>

#include "backend/operations.h"

namespace kvcal::cpu {

/// Largest finite magnitude of some values, and the number of values that are not finite.
struct Magnitudes {
  float amax = 0.0f;
  uint64_t nonfinite = 0;

  void merge(const Magnitudes& other) {
    amax = other.amax > amax ? other.amax : amax;
    nonfinite += other.nonfinite;
  }
};

/// Folds the output of one block into the operation's slot, if any. Thread-safe: neither a maximum
/// nor a count depends on the order.
inline void fold_into(const AmaxSlot& seen, const Magnitudes& block) {
  if (!seen) return;
  const std::atomic_ref amax(*seen.amax);
  float before = amax.load(std::memory_order_relaxed);
  while (before < block.amax && !amax.compare_exchange_weak(before, block.amax)) {
  }
  if (block.nonfinite > 0)
    std::atomic_ref(*seen.nonfinite).fetch_add(block.nonfinite, std::memory_order_relaxed);
}

}  // namespace kvcal::cpu
