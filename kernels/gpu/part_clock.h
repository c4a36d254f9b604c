#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "kernels/gpu/device_memory.h"

namespace kvcal::gpu {

/// Takes the time of a stream's work by part: products, attention, passes over activations, waits
/// for weights and hidden states, copies to and from the host. Points of the stream stand before
/// and after each operation, and are read when the device has long passed them. What is being
/// recorded is not timed.
class PartClock : public OperationWatch {
 public:
  /// Name of an operation that is no Backend's: the stream waits for another one, or copies.
  static constexpr std::string_view kWait = "wait", kCopy = "copy";

  PartClock(Stream& stream, const DeviceMemory& memory) : stream_(stream), memory_(memory) {}
  void begin(std::string_view operation) override;
  void end() override;
  /// In the order of names below; waits for the stream.
  std::vector<PartTime> times();

 private:
  enum Part { kProducts, kAttention, kPasses, kWaits, kCopies, kNumParts };
  static Part part_of(std::string_view operation);
  /// Points before and after work of one part.
  struct Span {
    Part part = kPasses;
    Event from{true}, to{true};
  };
  /// Ends the span of the work before, and begins one of the innermost operation.
  void turn();
  void read_all();

  Stream& stream_;
  const DeviceMemory& memory_;
  std::vector<Part> open_;  ///< of the operations that have begun: an operation's are its own,
                            ///< but for waits
  std::unique_ptr<Span> now_;
  std::vector<std::unique_ptr<Span>> passed_, free_;
  double milliseconds_[kNumParts] = {};
};

}  // namespace kvcal::gpu
