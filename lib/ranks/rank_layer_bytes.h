#pragma once

#include <cstdint>

#include "stored/layer_bytes.h"

namespace kvcal {

/// LayerBytes of one of several ranks.
class RankLayerBytes : public LayerBytes {
 public:
  /// A hash of the layer's bytes as this rank packed them; equal bytes have equal hashes. 0: not
  /// packed here.
  virtual uint64_t hash(int64_t layer) const = 0;
  /// Bytes of layers that this rank has read from files.
  virtual uint64_t bytes_read() const = 0;
  /// No layer will be brought any more: tells ranks that wait for this one to bring the next.
  virtual void leave() noexcept {}
};

}  // namespace kvcal
