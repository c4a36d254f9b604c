#pragma once

#include "warp.h"

// Where an access of a lane goes, checked.
namespace kvcal::ptx {

enum class Space { kGlobal, kShared, kLocal, kParameter, kGeneric };

struct Access {
  uint32_t bytes = 0;
  bool writes = false;
};

/// The address operand of an instruction plus its offset.
inline uint64_t address_of(const Warp& warp, const Instruction& instruction, Slot slot, int lane) {
  const uint64_t base =
      instruction.has_short_address ? warp.words(slot)[lane] : warp.longs(slot)[lane];
  return base + static_cast<uint64_t>(instruction.offset);
}

[[noreturn]] void stop_global(const Warp& warp, const Instruction& instruction, uint64_t address,
                              uint32_t bytes);
std::byte* local_bytes(const Warp& warp, const Instruction& instruction, uint64_t address,
                       uint32_t bytes, int lane);
std::byte* parameter_bytes(const Warp& warp, const Instruction& instruction, uint64_t address,
                           uint32_t bytes);

inline std::byte* global_bytes(const Warp& warp, const Instruction& instruction, uint64_t address,
                               uint32_t bytes) {
  Allocation& last = warp.block().last;
  if (!last.holds(address, bytes)) {
    const Allocation* const found = find_allocation(address, bytes);
    if (!found) stop_global(warp, instruction, address, bytes);
    last = *found;
  }
  if (address % bytes != 0) stop_global(warp, instruction, address, bytes);
  return reinterpret_cast<std::byte*>(address);
}

/// The bytes of a lane's access. Ends the program where there are none.
template <Space kSpace>
inline std::byte* bytes_at(Warp& warp, const Instruction& instruction, uint64_t address,
                           Access access, int lane) {
  if constexpr (kSpace == Space::kGlobal)
    return global_bytes(warp, instruction, address, access.bytes);
  if constexpr (kSpace == Space::kShared)
    return warp.block().shared.access(warp, instruction, static_cast<uint32_t>(address),
                                      access.bytes, access.writes, lane);
  if constexpr (kSpace == Space::kLocal)
    return local_bytes(warp, instruction, address, access.bytes, lane);
  if constexpr (kSpace == Space::kParameter)
    return parameter_bytes(warp, instruction, address, access.bytes);
  if (address - kSharedWindow < kWindowBytes)
    return bytes_at<Space::kShared>(warp, instruction, address - kSharedWindow, access, lane);
  if (address - kLocalWindow < kWindowBytes)
    return bytes_at<Space::kLocal>(warp, instruction, address - kLocalWindow, access, lane);
  return bytes_at<Space::kGlobal>(warp, instruction, address, access, lane);
}

}  // namespace kvcal::ptx
