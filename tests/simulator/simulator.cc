#include "simulator/simulator.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "simulator/fiber.h"

namespace kvcal::gpu::simulator {
namespace {

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "simulated GPU: %s\n", what);
  std::abort();
}

enum class State : uint8_t { kReady, kAtBlock, kAtWarp, kDone };

struct Warp {
  WarpWords words[2] = {};
  int waiting = 0, kind = 0;
  unsigned generation = 0;
};

/// One block while it runs.
struct Block {
  std::vector<State> states;
  std::vector<ThreadState> threads;
  std::vector<Warp> warps;
  size_t at_barrier = 0, running = 0;
  std::map<const void*, std::pair<std::unique_ptr<std::byte[]>, size_t>> shared;
  std::unique_ptr<std::byte[]> dynamic;
};

thread_local Block* block = nullptr;
thread_local Order order = Order::kForward;
Order asked_order = Order::kForward;

void wait_as(State state) {
  const size_t me = block->running;
  block->states[me] = state;
  leave_fiber();
  block->running = me;
}

void release_warp(size_t warp) {
  for (size_t i = warp * kWarpLanes; i < (warp + 1) * kWarpLanes; ++i)
    if (block->states[i] == State::kAtWarp) block->states[i] = State::kReady;
}

/// Lets every thread go on that can; true if one could.
bool take_turns(const std::function<void()>& thread) {
  bool moved = false;
  const size_t count = block->states.size();
  for (size_t turn = 0; turn < count; ++turn) {
    const size_t i = order == Order::kForward ? turn : count - 1 - turn;
    if (block->states[i] != State::kReady) continue;
    block->running = i;
    if (enter_fiber(i, thread)) block->states[i] = State::kDone;
    moved = true;
  }
  return moved;
}

void run_block(const std::function<void()>& thread) {
  const size_t count = block->states.size();
  std::fill(block->states.begin(), block->states.end(), State::kReady);
  block->at_barrier = 0;
  for (Warp& warp : block->warps) warp.waiting = 0;
  for (auto& [declaration, memory] : block->shared)
    std::memset(memory.first.get(), 0xff, memory.second);
  while (take_turns(thread)) {
  }
  for (size_t i = 0; i < count; ++i)
    if (block->states[i] != State::kDone)
      stop("threads wait at a barrier or in a warp exchange that others of theirs have left");
}

std::recursive_mutex& queue_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}
std::set<Queue*>& queues() {
  static std::set<Queue*> all;
  return all;
}

struct Memory {
  std::mutex mutex;
  std::map<void*, size_t> blocks;
  size_t used = 0, limit = size_t{16} << 30;
};
Memory& memory() {
  static Memory all;
  return all;
}

}  // namespace

const ThreadState& current() {
  return block->threads[block->running];
}

int lane() {
  return static_cast<int>(block->running % kWarpLanes);
}

void sync_threads() {
  if (++block->at_barrier < block->states.size()) return wait_as(State::kAtBlock);
  block->at_barrier = 0;
  for (State& state : block->states)
    if (state == State::kAtBlock) state = State::kReady;
}

const WarpWords& exchange(int kind, const uint32_t* words, int count) {
  const size_t index = block->running / kWarpLanes;
  Warp& warp = block->warps[index];
  WarpWords& slot = warp.words[warp.generation & 1];
  std::memcpy(slot[block->running % kWarpLanes], words, static_cast<size_t>(count) * 4);
  if (warp.waiting == 0) warp.kind = kind;
  if (warp.kind != kind) stop("lanes of a warp take part in different exchanges");
  if (++warp.waiting < kWarpLanes) {
    wait_as(State::kAtWarp);
  } else {
    warp.waiting = 0;
    ++warp.generation;
    release_warp(index);
  }
  return slot;
}

void* shared_memory(const void* declaration, size_t bytes) {
  auto& [data, size] = block->shared[declaration];
  if (!data) {
    data = std::make_unique<std::byte[]>(bytes);
    size = bytes;
    std::memset(data.get(), 0xff, bytes);
  }
  return data.get();
}

std::byte* dynamic_shared_memory() {
  return block->dynamic.get();
}

void set_order(Order wanted) {
  asked_order = wanted;
}

void run_kernel(Dim grid, Dim dim, size_t shared_bytes, const std::function<void()>& thread) {
  const size_t count = size_t{dim.x} * dim.y * dim.z;
  if (count % kWarpLanes != 0 || count > 1024) stop("a block is no whole number of warps");
  if (grid.y > 65535 || grid.z > 65535 || grid.x == 0 || grid.y == 0 || grid.z == 0)
    stop("a grid has no block, or more in y or z than a device takes");
  if (shared_bytes > size_t{227} << 10) stop("a block asks for more shared memory than there is");
  Block state;
  order = asked_order;
  state.states.resize(count);
  state.threads.resize(count);
  state.warps.resize(count / kWarpLanes);
  state.dynamic = std::make_unique<std::byte[]>(shared_bytes);
  block = &state;
  const size_t blocks = size_t{grid.x} * grid.y * grid.z;
  for (size_t turn = 0; turn < blocks; ++turn) {
    const size_t b = order == Order::kForward ? turn : blocks - 1 - turn;
    const Dim at{static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                 static_cast<unsigned>(b / grid.x / grid.y)};
    for (size_t t = 0; t < count; ++t)
      state.threads[t] = {
          {static_cast<unsigned>(t % dim.x), static_cast<unsigned>(t / dim.x % dim.y),
           static_cast<unsigned>(t / dim.x / dim.y)},
          at,
          dim,
          grid};
    std::memset(state.dynamic.get(), 0xff, shared_bytes);
    run_block(thread);
  }
  block = nullptr;
}

Queue::~Queue() {
  run_until(pushed_);
  const std::lock_guard lock(queue_mutex());
  queues().erase(this);
}

void Queue::push(std::function<void()> operation) {
  const std::lock_guard lock(queue_mutex());
  if (captured_) return captured_->push_back(std::move(operation));
  queues().insert(this);
  pending_.push_back(std::move(operation));
  ++pushed_;
}

uint64_t Queue::position() const {
  const std::lock_guard lock(queue_mutex());
  return pushed_;
}

void Queue::run_until(uint64_t position) {
  const std::lock_guard lock(queue_mutex());
  while (done_ < position) {
    const std::function<void()> operation = std::move(pending_.front());
    pending_.pop_front();
    ++done_;
    operation();
  }
}

void Queue::capture_into(std::vector<std::function<void()>>* target) {
  const std::lock_guard lock(queue_mutex());
  captured_ = target;
}

void run_everything() {
  const std::lock_guard lock(queue_mutex());
  for (Queue* queue : queues()) queue->run_until(queue->position());
}

void* allocate(size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  if (bytes > memory().limit - memory().used) return nullptr;
  void* data = ::operator new (bytes, std::align_val_t{256});
  std::memset(data, 0xff, bytes);
  memory().blocks[data] = bytes;
  memory().used += bytes;
  return data;
}

void release(void* data) {
  run_everything();
  const std::lock_guard lock(memory().mutex);
  const auto found = memory().blocks.find(data);
  if (found == memory().blocks.end()) stop("memory is released that was not allocated");
  memory().used -= found->second;
  memory().blocks.erase(found);
  ::operator delete (data, std::align_val_t{256});
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
