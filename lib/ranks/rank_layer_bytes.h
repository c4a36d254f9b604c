#pragma once

#include <cstdint>

#include "stored/layer_bytes.h"

namespace kvcal {

/// LayerBytes of one of several ranks.
class RankLayerBytes : public LayerBytes {
 public:
  /// Hash of the layer's bytes as this rank packed them; equal bytes have equal hashes. 0: this
  /// rank did not pack it.
  virtual uint64_t hash(int64_t layer) const = 0;
  /// Bytes of layers that this rank has read from files.
  virtual uint64_t bytes_read() const = 0;
  /// Announces that this rank brings no more layers, to ranks that wait for the next one.
  virtual void leave() noexcept {}
};

}  // namespace kvcal
