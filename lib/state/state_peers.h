#pragma once

#include <cstdint>

namespace kvcal {

/// The ranks of a run, as its state needs them. This class: a single process.
class StatePeers {
 public:
  virtual ~StatePeers() = default;
  virtual int64_t rank() const { return 0; }
  virtual int64_t size() const { return 1; }
  /// The bits that are set on all ranks. Collective: no rank returns before all have called.
  virtual uint64_t all(uint64_t bits) { return bits; }
};

}  // namespace kvcal
