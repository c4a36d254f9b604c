#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/gpu/portability.h"

namespace kvcal::gpu {

struct DeviceBlock {
  std::byte* data = nullptr;
  size_t bytes = 0;
  const Stream* last_user = nullptr;
  std::unique_ptr<Event> released;  ///< a point of it after the last use
};

/// Device memory in blocks that are kept when they are given back, since asking the driver makes
/// the whole device wait. A block goes to its next user when the stream it was last used on is past
/// it.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// At least bytes, 256-byte aligned, first used on user. Throws Error saying how much was wanted
  /// and what to set.
  std::byte* take(size_t bytes, Stream& user);
  /// Work that last_user was given before may still use the block.
  void give_back(std::byte* data, Stream& last_user) noexcept;
  /// Free on the device, with what is kept here.
  size_t free_bytes();

  /// Whether operations are being recorded.
  bool is_closed() const { return is_closed_; }
  /// While one lives, take throws: what is recorded would be played when others have the block.
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

/// A block for the time of a C++ scope, used on one stream.
class HeldMemory {
 public:
  HeldMemory(DeviceMemory& memory, Stream& user, size_t bytes)
      : data(memory.take(bytes, user)), memory_(memory), user_(user) {}
  ~HeldMemory() { memory_.give_back(data, user_); }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;

  std::byte* const data;

 private:
  DeviceMemory& memory_;
  Stream& user_;
};

/// Pinned host memory that data passes through on its way to the device, so that a copy neither
/// waits for the device nor needs the source to stay.
class Staging {
 public:
  Staging(Stream& stream, size_t chunk_bytes, int chunks);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  size_t chunk_bytes() const { return chunk_bytes_; }
  /// A chunk that no copy reads any more, and its number.
  std::pair<std::byte*, int> next();
  /// Call when the stream has been asked for everything that reads the chunk.
  void asked(int chunk);
  /// Copies host bytes to the device by way of chunks.
  void copy(std::span<const std::byte> host, std::byte* data);

 private:
  Stream& stream_;
  size_t chunk_bytes_;
  std::vector<std::byte*> chunks_;
  std::vector<std::unique_ptr<Event>> done_;
  size_t next_ = 0;
};

}  // namespace kvcal::gpu
