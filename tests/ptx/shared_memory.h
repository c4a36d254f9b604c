#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program.h"

// Shared memory of a block, with what is needed to find races and missing fences.
namespace kvcal::ptx {

class SharedMemory {
 public:
  /// Addresses [kSharedBase, end). Fills memory with NaN and forgets all accesses.
  void reset(uint32_t end);

  /// The bytes at an address, for an access of a lane. Ends the program where they are out of
  /// bounds or not aligned to bytes, or where another warp accessed them since the block's last
  /// barrier, or another lane since the warp's last one, and one of both accesses wrote.
  std::byte* access(Warp& warp, const Instruction& instruction, uint32_t address, uint32_t bytes,
                    bool writes, int lane);
  /// The same for an atomic operation, which does not race with other atomic ones.
  std::byte* access_atomically(const Warp& warp, const Instruction& instruction, uint32_t address,
                               uint32_t bytes);
  /// For a product of a warpgroup, which reads through the asynchronous proxy: bytes must be
  /// published, too. has_started: it may have read them before; they must still be the same.
  const std::byte* read_by_product(const Warp& warp, const Instruction& instruction,
                                   uint32_t address, uint32_t bytes, bool has_started) const;

  /// Makes the writes of a warp's lanes visible to the asynchronous proxy.
  void publish(int warp, uint32_t lanes);
  /// All warps met at a barrier.
  void pass_barrier() { ++epoch_; }

 private:
  /// Accesses are kept for two bytes together, since no kernel shares single bytes.
  static constexpr uint32_t kGranule = 2;
  struct Accesses {
    uint32_t write_epoch = 0, read_epoch = 0, atomic_epoch = 0;  ///< of the block's barriers
    uint32_t write_sync = 0;                                     ///< of the writing warp's barriers
    uint32_t readers = 0, atomic_users = 0;                      ///< masks of warps
    uint8_t writer = 0, writer_lane = 0;
    bool is_unpublished = false;
  };
  /// Ends the program where an address is out of bounds or not aligned.
  void check(const Warp& warp, const Instruction& instruction, uint32_t address,
             uint32_t bytes) const {
    if (address % bytes != 0 || address < kSharedBase || address >= end_ || bytes > end_ - address)
        [[unlikely]]
      stop_at(warp, instruction, address, bytes);
  }
  [[noreturn]] void stop_at(const Warp& warp, const Instruction& instruction, uint32_t address,
                            uint32_t bytes) const;
  void check_atomics(const Warp& warp, const Instruction& instruction,
                     const Accesses& accesses) const;
  void check_readers(const Warp& warp, const Instruction& instruction,
                     const Accesses& accesses) const;
  void note_write(const Warp& warp, const Instruction& instruction, Accesses& accesses, int lane);
  void note_read(const Warp& warp, const Instruction& instruction, Accesses& accesses, int lane);

  uint32_t end_ = 0, epoch_ = 1;
  std::vector<std::byte> bytes_;
  std::vector<Accesses> accesses_;
  std::vector<uint32_t> unpublished_;  ///< granules with is_unpublished
};

}  // namespace kvcal::ptx
