#include "addresses.h"

#include <string>

namespace kvcal::ptx {

void stop_global(const Warp& warp, const Instruction& instruction, uint64_t address,
                 uint32_t bytes) {
  if (find_allocation(address, bytes))
    stop(warp, instruction,
         "global address " + hex(address) + " is not aligned to " + std::to_string(bytes));
  std::string where = ", in no allocation";
  if (const Allocation* near = find_allocation(address, 1))
    where = ", of which the allocation that ends there has " + std::to_string(near->end - address);
  else if (const Allocation* before = find_allocation(address - bytes, 1))
    where = ", behind an allocation of " + std::to_string(before->end - before->begin) + " bytes";
  stop(warp, instruction,
       "global access out of bounds: " + std::to_string(bytes) + " bytes at " + hex(address) +
           where);
}

std::byte* local_bytes(const Warp& warp, const Instruction& instruction, uint64_t address,
                       uint32_t bytes, int lane) {
  Block& block = warp.block();
  const uint32_t size = block.kernel.local_bytes;
  if (address % bytes != 0 || address >= size || bytes > size - address)
    stop(warp, instruction,
         "local access out of bounds or not aligned: " + std::to_string(bytes) + " bytes at " +
             hex(address) + " of " + std::to_string(size));
  const auto thread = static_cast<size_t>(warp.id() * kLanes + lane);
  return &block.local[thread * size + address];
}

std::byte* parameter_bytes(const Warp& warp, const Instruction& instruction, uint64_t address,
                           uint32_t bytes) {
  const uint32_t size = warp.block().kernel.parameter_bytes;
  if (address % bytes != 0 || address >= size || bytes > size - address)
    stop(warp, instruction,
         "access of parameters out of bounds or not aligned: " + std::to_string(bytes) +
             " bytes at " + hex(address) + " of " + std::to_string(size));
  return const_cast<std::byte*>(warp.block().parameters) + address;
}

}  // namespace kvcal::ptx
