// Memory of the simulated device, and pinned memory of its host.
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "simulator/simulator.h"

namespace kvcal::gpu::simulator {
namespace {

struct Memory {
  std::mutex mutex;
  std::map<void*, size_t> blocks, pinned;
  size_t used = 0, limit = size_t{16} << 30;
};
Memory& memory() {
  static Memory all;
  return all;
}

}  // namespace

void* allocate(size_t bytes) {
  check_not_capturing("memory is allocated while operations are captured");
  const std::lock_guard lock(memory().mutex);
  if (bytes > memory().limit - memory().used) return nullptr;
  void* data = ::operator new (bytes, std::align_val_t{256});
  std::memset(data, 0xff, bytes);
  memory().blocks[data] = bytes;
  memory().used += bytes;
  return data;
}

void release(void* data) {
  check_not_capturing("memory is released while operations are captured");
  run_everything();
  const std::lock_guard lock(memory().mutex);
  const auto found = memory().blocks.find(data);
  if (found == memory().blocks.end()) stop("memory is released that was not allocated");
  memory().used -= found->second;
  memory().blocks.erase(found);
  ::operator delete (data, std::align_val_t{256});
}

void* allocate_pinned(size_t bytes) {
  void* data = ::operator new (bytes, std::align_val_t{256}, std::nothrow);
  const std::lock_guard lock(memory().mutex);
  if (data) memory().pinned[data] = bytes;
  return data;
}

void release_pinned(void* data) {
  run_everything();
  const std::lock_guard lock(memory().mutex);
  if (memory().pinned.erase(data) == 0) stop("pinned memory is released that was not allocated");
  ::operator delete (data, std::align_val_t{256});
}

size_t pinned_bytes() {
  const std::lock_guard lock(memory().mutex);
  size_t bytes = 0;
  for (const auto& [data, size] : memory().pinned) bytes += size;
  return bytes;
}

void set_memory_limit(size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().limit = bytes;
}

size_t free_memory() {
  const std::lock_guard lock(memory().mutex);
  return memory().limit > memory().used ? memory().limit - memory().used : 0;
}

size_t total_memory() {
  const std::lock_guard lock(memory().mutex);
  return memory().limit;
}

}  // namespace kvcal::gpu::simulator
