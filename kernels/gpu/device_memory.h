#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "kernels/gpu/portability.h"

namespace kvcal::gpu {

struct DeviceBlock {
  std::byte* data = nullptr;
  size_t bytes = 0;
  const Stream* last_user = nullptr;
  std::unique_ptr<Event> released;  ///< a point of it after the last use
};

/// Device memory in blocks that are kept after release, because an allocation by the driver stalls
/// the whole device. A block gets its next user after the stream of its last use has passed it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Takes at least bytes, 256-byte aligned, first used on user. Throws Error with the size and the
  /// option to change.
  std::byte* take(size_t bytes, Stream& user);
  /// Work issued earlier on last_user may still use the block.
  void give_back(std::byte* data, Stream& last_user) noexcept;
  /// Free bytes of the device, including the blocks kept here.
  size_t free_bytes();

  /// Whether operations are being recorded.
  bool is_closed() const { return is_closed_; }
  /// Makes take throw during its lifetime: a recording would be replayed when others own the block.
  class Closed {
   public:
    explicit Closed(DeviceMemory& memory) : memory_(memory) { memory_.is_closed_ = true; }
    ~Closed() { memory_.is_closed_ = false; }
    Closed(const Closed&) = delete;
    Closed& operator=(const Closed&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  std::byte* use(DeviceBlock block, Stream& user);
  DeviceBlock allocate(size_t bytes);
  void release_kept();

  std::mutex mutex_;
  bool is_closed_ = false;
  std::vector<DeviceBlock> kept_, used_;
};

/// A block with the lifetime of a C++ scope, used on one stream.
class ScopedMemory {
 public:
  ScopedMemory(DeviceMemory& memory, Stream& user, size_t bytes)
      : data(memory.take(bytes, user)), memory_(memory), user_(user) {}
  ~ScopedMemory() { memory_.give_back(data, user_); }
  ScopedMemory(const ScopedMemory&) = delete;
  ScopedMemory& operator=(const ScopedMemory&) = delete;

  std::byte* const data;

 private:
  DeviceMemory& memory_;
  Stream& user_;
};

/// Pinned host memory for copies to devices, so that a copy neither waits for the device nor keeps
/// the source alive. Several streams, also of several devices, may copy the same bytes.
class Staging {
 public:
  /// Memory is taken when it is first needed: up to chunks times chunk_bytes.
  Staging(size_t chunk_bytes, size_t chunks) : chunk_bytes_(chunk_bytes), chunks_(chunks) {}
  /// Waits for the copies.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  class Chunk {
   public:
    std::byte* data() const { return data_; }
    /// Marks the end of a copy; call after the stream was asked for it, on the stream's device. The
    /// stream outlives the staging memory.
    void copied_by(Stream& stream);

   private:
    friend class Staging;
    void await_copies();
    void release() noexcept;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
    std::vector<std::pair<const Stream*, std::unique_ptr<Event>>> copied_;
  };

  size_t chunk_bytes() const { return chunk_bytes_; }
  /// A chunk of at least so many bytes that no copy reads any longer; larger than chunk_bytes only
  /// where bytes is.
  Chunk& next(size_t bytes);
  /// Copies host bytes to the current device, the stream's, through chunks.
  void copy(std::span<const std::byte> host, std::byte* data, Stream& stream);

 private:
  size_t chunk_bytes_;
  std::vector<Chunk> chunks_;
  size_t next_ = 0;
};

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
