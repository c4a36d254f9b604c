#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "device_memory.h"
#include "program.h"
#include "report.h"
#include "shared_memory.h"

namespace kvcal::ptx {

class Warp;

/// A product that the warps of a warpgroup start together.
struct StartedProduct {
  const Instruction* instruction = nullptr;
  uint64_t a = 0, b = 0;
  bool operator==(const StartedProduct&) const = default;
};

/// What all warps of a block share.
struct Block {
  const Kernel& kernel;
  const std::byte* parameters = nullptr;
  uint32_t index[3] = {0, 0, 0}, grid[3] = {1, 1, 1}, threads[3] = {1, 1, 1};
  SharedMemory shared = {};
  std::vector<std::byte> local = {};  ///< of each thread in turn
  Allocation last = {};               ///< the one that was accessed last
  std::vector<std::vector<StartedProduct>> warpgroups = {};
  uint32_t thread_count() const { return threads[0] * threads[1] * threads[2]; }
  /// Ends the program where a warp starts another product than the other warps of its warpgroup.
  void check_warpgroup(Warp& warp, const Instruction& instruction, uint64_t a, uint64_t b);
};

/// Generic addresses of a block's shared and of a thread's local memory.
constexpr uint64_t kSharedWindow = uint64_t{0x7f} << 40, kLocalWindow = uint64_t{0x7e} << 40;
constexpr uint64_t kWindowBytes = uint64_t{1} << 24;

/// Lanes that are at the same instruction.
struct LaneGroup {
  uint32_t pc = 0, lanes = 0;
  bool is_waiting = false;  ///< for the other lanes that the instruction needs
};

/// Bytes that cp.async copies into shared memory; zeros follow the existing ones.
struct AsyncCopy {
  uint32_t to = 0, bytes = 0, existing = 0;
  uint64_t from = 0;
  int lane = 0;
  const Instruction* instruction = nullptr;
};

/// A product of a warpgroup under way (opcodes_warpgroup.cc): this warp's 16 rows of it.
struct AsyncProduct {
  const Instruction* instruction = nullptr;
  uint64_t a = 0, b = 0;           ///< descriptors
  std::vector<uint16_t> elements;  ///< of what the descriptors named when it started
  std::vector<uint32_t>
      registers;  ///< those of a, and of the sums unless an open product adds to them
};

struct AsyncProducts {
  bool is_fenced = false;
  size_t started = 0;  ///< since the block began
  std::vector<AsyncProduct> open;
  std::vector<std::vector<AsyncProduct>> committed;
};

class Warp {
 public:
  Warp(Block& block, int id, std::byte* file) : block_(&block), id_(id), file_(file) {}

  Block& block() const { return *block_; }
  int id() const { return id_; }
  /// The number of barriers at which the warp's lanes met, from 1.
  uint32_t sync_epoch() const { return sync_epoch_; }
  void pass_barrier() { ++sync_epoch_; }

  std::byte* at(Slot slot) const { return file_ + slot; }
  uint32_t* words(Slot slot) const { return reinterpret_cast<uint32_t*>(file_ + slot); }
  uint64_t* longs(Slot slot) const { return reinterpret_cast<uint64_t*>(file_ + slot); }
  uint32_t& mask(Slot slot) const { return *reinterpret_cast<uint32_t*>(file_ + slot); }

  /// Does the copies that lanes have under way.
  void finish_copies(uint32_t lanes);

  std::vector<LaneGroup> groups{{0, kAllLanes, false}};
  uint32_t exited = 0;
  std::vector<AsyncCopy> copies;
  AsyncProducts products;

 private:
  Block* block_;
  int id_;
  uint32_t sync_epoch_ = 1;
  std::byte* file_;
};

inline std::byte* SharedMemory::access(Warp& warp, const Instruction& instruction, uint32_t address,
                                       uint32_t bytes, bool writes, int lane) {
  check(warp, instruction, address, bytes);
  Accesses* const first = &accesses_[(address - kSharedBase) / kGranule];
  for (uint32_t i = 0; i < (bytes + kGranule - 1) / kGranule; ++i) {
    if (writes)
      note_write(warp, instruction, first[i], lane);
    else if (first[i].write_epoch == epoch_ || first[i].read_epoch != epoch_ ||
             first[i].atomic_epoch == epoch_)
      note_read(warp, instruction, first[i], lane);
    else
      first[i].readers |= 1u << warp.id();
  }
  return &bytes_[address - kSharedBase];
}

/// The values of a register as T; those of 8 and 16 bits are the lower part of a word.
template <class T>
class Register {
  using Stored = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

 public:
  Register(const Warp& warp, Slot slot) : data_(reinterpret_cast<Stored*>(warp.at(slot))) {}
  T operator[](int lane) const {
    if constexpr (sizeof(T) >= 4)
      return std::bit_cast<T>(data_[lane]);
    else
      return static_cast<T>(data_[lane]);
  }
  void set(int lane, T value) const {
    if constexpr (sizeof(T) >= 4)
      data_[lane] = std::bit_cast<Stored>(value);
    else
      data_[lane] = static_cast<std::make_unsigned_t<T>>(value);
  }

 private:
  Stored* data_;
};

/// Calls body(lane) for the lanes of a mask. Registers are the same or apart, so a loop over all
/// lanes may be vectorized.
template <class Body>
inline void for_lanes(uint32_t lanes, const Body& body) {
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) body(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) body(std::countr_zero(lanes));
  }
}

}  // namespace kvcal::ptx
