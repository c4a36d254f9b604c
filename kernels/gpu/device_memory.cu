#include "kernels/gpu/device_memory.h"

#include <algorithm>
#include <cstring>

namespace kvcal::gpu {
namespace {

#if defined(KVCAL_EXACT_DEVICE_MEMORY)
/// Blocks end where their content ends and are used once, so that a device that checks bounds sees
/// all of them.
constexpr bool kIsExact = true;
#else
constexpr bool kIsExact = false;
#endif

/// Rounds to the sizes of blocks, so that they can be reused.
size_t rounded(size_t bytes) {
  if (kIsExact) return std::max(bytes, size_t{1});
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
    if (kIsExact) {
      release_device(data);
      used_.erase(found);
      return;
    }
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

Staging::~Staging() {
  for (Chunk& chunk : chunks_) chunk.release();
}

void Staging::Chunk::copied_by(Stream& stream) {
  auto found = std::ranges::find(copied_, &stream, [](const auto& one) { return one.first; });
  if (found == copied_.end()) found = copied_.insert(found, {&stream, std::make_unique<Event>()});
  found->second->record(stream);
}

void Staging::Chunk::await_copies() {
  for (const auto& [stream, event] : copied_) event->synchronize();
}

void Staging::Chunk::release() noexcept {
  try {
    await_copies();
  } catch (...) {  // a device that failed copies no more
  }
  if (data_) release_pinned_host(data_);
  data_ = nullptr;
}

Staging::Chunk& Staging::next(size_t bytes) {
  Chunk& chunk = chunks_[next_];
  next_ = (next_ + 1) % chunks_.size();
  chunk.await_copies();
  if (chunk.bytes_ >= bytes) return chunk;
  chunk.release();
  const size_t wanted = std::max(bytes, chunk_bytes_);
  chunk.bytes_ = 0;
  chunk.data_ = static_cast<std::byte*>(allocate_pinned_host(wanted));
  if (!chunk.data_) fail("no pinned host memory for ", wanted, " bytes");
  chunk.bytes_ = wanted;
  return chunk;
}

void Staging::copy(std::span<const std::byte> host, std::byte* data, Stream& stream) {
  for (size_t begin = 0; begin < host.size(); begin += chunk_bytes_) {
    const auto part = host.subspan(begin, std::min(chunk_bytes_, host.size() - begin));
    Chunk& chunk = next(part.size());
    std::memcpy(chunk.data(), part.data(), part.size());
    stream.copy(data + begin, chunk.data(), part.size());
    chunk.copied_by(stream);
  }
}

void SideStreams::run(Stream& main, size_t parts,
                      const std::function<void(size_t, Stream&)>& issue) {
  const size_t used = std::min(parts, sides_.size() + 1) - (parts > 0 ? 1 : 0);
  begun_.record(main);
  for (size_t i = 0; i < used; ++i) sides_[i].stream.wait(begun_);
  const auto join = [&] {
    for (size_t i = 0; i < used; ++i) {
      sides_[i].done.record(sides_[i].stream);
      main.wait(sides_[i].done);
    }
  };
  try {
    for (size_t part = 0; part < parts; ++part) {
      const size_t turn = part % (used + 1);
      issue(part, turn == 0 ? main : sides_[turn - 1].stream);
    }
  } catch (...) {
    join();  // what was issued still uses the memory that main's later work may take
    throw;
  }
  join();
}

namespace {

/// Operations whose points are kept before they are read: those of some layers and batches, so that
/// the device has hardly any left to do when the host waits for the last.
constexpr size_t kMostSpans = 4096;

constexpr const char* kNames[] = {"products", "attention", "passes", "waits", "copies"};

}  // namespace

PartClock::Part PartClock::part_of(std::string_view operation) {
  if (operation.starts_with("matmul")) return kProducts;
  if (operation.starts_with("attention")) return kAttention;
  if (operation == kWait) return kWaits;
  if (operation == kCopy) return kCopies;
  return kPasses;
}

void PartClock::begin(std::string_view operation) {
  const Part part = part_of(operation);
  const bool is_part_of_outer = !open_.empty() && part != kWaits;
  open_.push_back(is_part_of_outer ? open_.back() : part);
  if (!is_part_of_outer) turn();
}

void PartClock::end() {
  const Part ended = open_.back();
  open_.pop_back();
  if (open_.empty() || open_.back() != ended) turn();
  if (open_.empty() && passed_.size() >= kMostSpans && !memory_.is_closed()) read_all();
}

void PartClock::turn() {
  if (now_) {
    now_->to.record(stream_);
    passed_.push_back(std::move(now_));
  }
  if (open_.empty() || memory_.is_closed()) return;
  if (free_.empty()) {
    now_ = std::make_unique<Span>();
  } else {
    now_ = std::move(free_.back());
    free_.pop_back();
  }
  now_->part = open_.back();
  now_->from.record(stream_);
}

void PartClock::read_all() {
  if (passed_.empty()) return;
  passed_.back()->to.synchronize();
  for (std::unique_ptr<Span>& span : passed_) {
    milliseconds_[span->part] += span->to.since(span->from);
    free_.push_back(std::move(span));
  }
  passed_.clear();
}

std::vector<PartTime> PartClock::times() {
  read_all();
  std::vector<PartTime> all;
  for (int part = 0; part < kNumParts; ++part)
    all.push_back({.part = kNames[part], .seconds = 1e-3 * milliseconds_[part]});
  return all;
}

}  // namespace kvcal::gpu
