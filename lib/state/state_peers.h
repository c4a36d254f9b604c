#pragma once

#include <cstdint>

namespace kvcal {

/// The ranks of a run as its state needs them. This one is alone.
class StatePeers {
 public:
  virtual ~StatePeers() = default;
  virtual int64_t rank() const { return 0; }
  virtual int64_t size() const { return 1; }
  /// The bits that are set on all ranks. Called by all of them, in the same order; none returns
  /// before all have called.
  virtual uint64_t all(uint64_t bits) { return bits; }
};

}  // namespace kvcal
