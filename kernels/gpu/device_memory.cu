#include "kernels/gpu/device_memory.h"

#include <algorithm>
#include <cstring>

namespace kvcal::gpu {
namespace {

/// Rounds to the sizes of blocks, so that they can be reused.
size_t rounded(size_t bytes) {
  const size_t step = bytes < size_t{1} << 20 ? size_t{512} : size_t{2} << 20;
  return std::max(step, (bytes + step - 1) / step * step);
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  release_kept();
  for (const DeviceBlock& block : used_) release_device(block.data);
}

std::byte* DeviceMemory::take(size_t bytes, Stream& user) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) fail("memory is taken while operations are recorded");
  const size_t wanted = rounded(bytes);
  // Takes the smallest block that is large enough. A slightly larger block is fine; a much larger
  // one is kept for larger requests.
  auto best = kept_.end();
  for (auto block = kept_.begin(); block != kept_.end(); ++block)
    if (block->bytes >= wanted && block->bytes <= wanted + wanted / 8 &&
        (best == kept_.end() || block->bytes < best->bytes))
      best = block;
  if (best != kept_.end()) {
    DeviceBlock block = std::move(*best);
    kept_.erase(best);
    return use(std::move(block), user);
  }
  return use(allocate(wanted), user);
}

std::byte* DeviceMemory::use(DeviceBlock block, Stream& user) {
  if (block.released && &user != block.last_user) user.wait(*block.released);
  std::byte* data = block.data;
  used_.push_back(std::move(block));
  return data;
}

DeviceBlock DeviceMemory::allocate(size_t bytes) {
  void* data = allocate_device(bytes);
  if (!data) {
    release_kept();
    data = allocate_device(bytes);
  }
  if (!data) {
    const MemoryState state = memory_state();
    fail("the device has no memory for ", bytes, " bytes (", state.free, " of ", state.total,
         " are free): set a smaller --memory-limit or --batch-tokens, or use a larger device");
  }
  return {static_cast<std::byte*>(data), bytes, nullptr, nullptr};
}

void DeviceMemory::give_back(std::byte* data, Stream& last_user) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(used_, data, &DeviceBlock::data);
    KVCAL_CHECK(found != used_.end());
    if (!found->released) found->released = std::make_unique<Event>();
    found->released->record(last_user);
    found->last_user = &last_user;
    kept_.push_back(std::move(*found));
    used_.erase(found);
  } catch (...) {  // a device that failed: the block stays with used_ or is lost with the process
  }
}

size_t DeviceMemory::free_bytes() {
  const std::lock_guard lock(mutex_);
  size_t kept = 0;
  for (const DeviceBlock& block : kept_) kept += block.bytes;
  return memory_state().free + kept;
}

void DeviceMemory::release_kept() {
  for (const DeviceBlock& block : kept_) release_device(block.data);
  kept_.clear();
}

Staging::Staging(Stream& stream, size_t chunk_bytes, int chunks)
    : stream_(stream), chunk_bytes_(chunk_bytes) {
  for (int i = 0; i < chunks; ++i) {
    auto* chunk = static_cast<std::byte*>(allocate_pinned_host(chunk_bytes));
    if (!chunk) fail("no pinned host memory for ", chunk_bytes, " bytes");
    chunks_.push_back(chunk);
    done_.push_back(std::make_unique<Event>());
  }
}

Staging::~Staging() {
  for (std::byte* chunk : chunks_) release_pinned_host(chunk);
}

std::pair<std::byte*, int> Staging::next() {
  const size_t chunk = next_;
  next_ = (next_ + 1) % chunks_.size();
  done_[chunk]->synchronize();
  return {chunks_[chunk], static_cast<int>(chunk)};
}

void Staging::asked(int chunk) {
  done_[static_cast<size_t>(chunk)]->record(stream_);
}

void Staging::copy(std::span<const std::byte> host, std::byte* data) {
  for (size_t begin = 0; begin < host.size(); begin += chunk_bytes_) {
    const auto part = host.subspan(begin, std::min(chunk_bytes_, host.size() - begin));
    const auto [chunk, number] = next();
    std::memcpy(chunk, part.data(), part.size());
    stream_.copy(data + begin, chunk, part.size());
    asked(number);
  }
}

}  // namespace kvcal::gpu
