#include "device_memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

namespace kvcal::ptx {
namespace {

struct Memory {
  std::shared_mutex mutex;
  std::map<uint64_t, Allocation> allocations;  ///< by begin
  size_t device_bytes = 0;
};
Memory& memory() {
  static Memory* const all = new Memory;  // lives until the process ends: so do its users
  return *all;
}

constexpr size_t kAlignment = 512, kShift = 256;

}  // namespace

void* allocate(size_t bytes, bool is_device) {
  Memory& all = memory();
  const std::unique_lock lock(all.mutex);
  if (is_device && bytes > kDeviceBytes - all.device_bytes) return nullptr;
  const size_t whole = (bytes + kShift + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, whole);
  if (!data) return nullptr;
  char* const begin = static_cast<char*>(data) + kShift;
  std::memset(begin, 0xff, bytes);
  const auto address = reinterpret_cast<uint64_t>(begin);
  all.allocations[address] = {address, address + bytes, is_device};
  if (is_device) all.device_bytes += bytes;
  return begin;
}

bool release(void* data, bool is_device) {
  Memory& all = memory();
  const std::unique_lock lock(all.mutex);
  const auto found = all.allocations.find(reinterpret_cast<uint64_t>(data));
  if (found == all.allocations.end() || found->second.is_device != is_device) return false;
  if (is_device) all.device_bytes -= found->second.end - found->second.begin;
  all.allocations.erase(found);
  std::free(static_cast<char*>(data) - kShift);
  return true;
}

void add_allocation(const Allocation& allocation) {
  const std::unique_lock lock(memory().mutex);
  memory().allocations[allocation.begin] = allocation;
}

size_t free_device_bytes() {
  const std::shared_lock lock(memory().mutex);
  return kDeviceBytes - memory().device_bytes;
}

const Allocation* find_allocation(uint64_t address, uint64_t bytes) {
  Memory& all = memory();
  const std::shared_lock lock(all.mutex);
  auto found = all.allocations.upper_bound(address);
  if (found == all.allocations.begin()) return nullptr;
  --found;
  return found->second.holds(address, bytes) ? &found->second : nullptr;
}

}  // namespace kvcal::ptx
