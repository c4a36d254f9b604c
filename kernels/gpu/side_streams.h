#pragma once

#include <array>
#include <functional>

#include "kernels/gpu/portability.h"

namespace kvcal::gpu {

/// Streams beside a main one, for work whose parts leave much of the device idle.
class SideStreams {
 public:
  /// Calls issue(part, stream) for each part, with the main stream and the others in turn. The
  /// parts run side by side, behind what was issued to main before, and main's later work runs
  /// behind all of them. Not while main records.
  void run(Stream& main, size_t parts, const std::function<void(size_t, Stream&)>& issue);

 private:
  struct Side {
    Stream stream;
    Event done;
  };
  /// An expert's product has a third of the blocks that a large chip runs together.
  std::array<Side, 3> sides_;
  Event begun_;
};

}  // namespace kvcal::gpu
