#pragma once

#include <cstddef>
#include <cstdint>

// Device and pinned memory of the judge: host memory that knows where it ends, to the byte.
namespace kvcal::ptx {

/// The bytes [begin, end) of one allocation.
struct Allocation {
  uint64_t begin = 0, end = 0;
  bool is_device = true;
  bool holds(uint64_t address, uint64_t bytes) const {
    return address >= begin && address < end && bytes <= end - address;
  }
};

constexpr size_t kDeviceBytes = size_t{8} << 30;

/// Memory filled with ones, which are NaN as floats, aligned to 256 bytes and no better. nullptr
/// where a device would have no more.
void* allocate(size_t bytes, bool is_device);
/// False where there is no such allocation.
bool release(void* data, bool is_device);
/// Makes memory that lives elsewhere, such as a variable of a module, accessible to kernels.
void add_allocation(const Allocation& allocation);
size_t free_device_bytes();

/// The allocation that holds all of the bytes; nullptr where there is none. The result is valid
/// until the next release of memory.
const Allocation* find_allocation(uint64_t address, uint64_t bytes);

}  // namespace kvcal::ptx
