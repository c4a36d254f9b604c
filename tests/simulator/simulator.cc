#include "simulator/simulator.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "simulator/fiber.h"
#include "simulator/products.h"

namespace kvcal::gpu::simulator {
namespace {

enum class State : uint8_t { kReady, kAtBlock, kAtWarp, kAtWave, kDone };

/// Lanes that exchange words.
template <int kLanes>
struct Lanes {
  uint32_t words[2][kLanes][kWarpWords] = {};
  int waiting = 0, kind = 0;
  unsigned generation = 0;
};

/// Memory at an odd multiple of its alignment, so that nothing is aligned better by chance.
class SharedMemory {
 public:
  SharedMemory(size_t bytes, size_t alignment)
      : unit_(std::align_val_t{std::max<size_t>(16, 2 * alignment)}),
        bytes_(bytes),
        memory_(static_cast<std::byte*>(::operator new(alignment + bytes, unit_))),
        data_(memory_ + alignment) {}
  ~SharedMemory() { ::operator delete(memory_, unit_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  void fill_with_nan() const { std::memset(data_, 0xff, bytes_); }

 private:
  std::align_val_t unit_;
  size_t bytes_;
  std::byte *memory_, *data_;
};

struct Copy {
  void* to;
  const void* from;
  bool exists;
};

/// One block while it runs.
struct Block {
  std::vector<State> states;
  std::vector<ThreadState> threads;
  std::vector<Lanes<kWarpLanes>> warps;
  std::vector<Lanes<kWaveLanes>> waves;
  size_t at_barrier = 0, running = 0;
  std::vector<std::vector<Copy>> copies;  ///< of each thread, under way
  std::vector<Products> products;         ///< of each thread
  std::vector<bool> has_published;        ///< whether a thread did since the last barrier
  std::vector<std::byte> published;       ///< dynamic shared memory, as products see it
  std::map<const void*, SharedMemory> shared;
  size_t declared_bytes = 0, dynamic_bytes = 0;  ///< of shared memory
  std::optional<SharedMemory> dynamic;
};

constexpr uint32_t kDynamicAddress = 16;  // aligned to 16 bytes and no better

thread_local Block* block = nullptr;
thread_local Order order = Order::kForward;
Order asked_order = Order::kForward;

void wait_as(State state) {
  const size_t me = block->running;
  block->states[me] = state;
  leave_fiber();
  block->running = me;
}

/// Passes words among the running thread's lanes; it waits with that state for the others.
template <int kLanes>
auto& exchange_among(std::vector<Lanes<kLanes>>& all, State waiting, int kind,
                     const uint32_t* words, int count) {
  const size_t index = block->running / kLanes;
  if (index >= all.size()) stop("a block is no whole number of wavefronts");
  Lanes<kLanes>& lanes = all[index];
  auto& slot = lanes.words[lanes.generation & 1];
  std::memcpy(slot[block->running % kLanes], words, static_cast<size_t>(count) * 4);
  if (lanes.waiting == 0) lanes.kind = kind;
  if (lanes.kind != kind) stop("lanes of a warp take part in different exchanges");
  if (++lanes.waiting < kLanes) {
    wait_as(waiting);
  } else {
    lanes.waiting = 0;
    ++lanes.generation;
    for (size_t i = index * kLanes; i < (index + 1) * kLanes; ++i)
      if (block->states[i] == waiting) block->states[i] = State::kReady;
  }
  return slot;
}

/// Lets every lane of a warp go on that can; true if one could.
bool take_turns_in_warp(size_t warp, const std::function<void()>& thread) {
  bool moved = false;
  for (size_t turn = 0; turn < kWarpLanes; ++turn) {
    const size_t i = warp * kWarpLanes + (order == Order::kReverse ? kWarpLanes - 1 - turn : turn);
    if (block->states[i] != State::kReady) continue;
    block->running = i;
    if (enter_fiber(i, thread)) {
      block->states[i] = State::kDone;
      if (!block->copies[i].empty()) stop("a thread ends with copies under way");
      if (!block->products[i].empty()) stop("a thread ends with products under way");
    }
    moved = true;
  }
  return moved;
}

/// Lets every thread go on that can; true if one could.
bool take_turns(const std::function<void()>& thread) {
  bool moved = false;
  const size_t count = block->warps.size();
  for (size_t turn = 0; turn < count; ++turn) {
    const size_t warp = order == Order::kReverse ? count - 1 - turn : turn;
    while (take_turns_in_warp(warp, thread)) {
      moved = true;
      if (order != Order::kGreedy) break;
    }
  }
  return moved;
}

void run_block(const std::function<void()>& thread) {
  const size_t count = block->states.size();
  std::fill(block->states.begin(), block->states.end(), State::kReady);
  block->at_barrier = 0;
  for (auto& warp : block->warps) warp.waiting = 0;
  for (auto& wave : block->waves) wave.waiting = 0;
  for (const auto& [declaration, memory] : block->shared) memory.fill_with_nan();
  block->dynamic->fill_with_nan();
  std::ranges::fill(block->published, std::byte{0xff});
  std::fill(block->has_published.begin(), block->has_published.end(), false);
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

Counts counted;  // under queue_mutex

std::atomic<int> capturing = 0;

thread_local int device = 0;
thread_local std::string last_error;
Chip current_chip;
std::atomic<int> copies_left = -1;

}  // namespace

void stop(const char* what) {
  std::fprintf(stderr, "simulated GPU: %s\n", what);
  std::abort();
}

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
  if (std::ranges::find(block->has_published, false) == block->has_published.end())
    std::memcpy(block->published.data(), block->dynamic->data(), block->dynamic_bytes);
  std::fill(block->has_published.begin(), block->has_published.end(), false);
}

const WarpWords& exchange(int kind, const uint32_t* words, int count) {
  return exchange_among(block->warps, State::kAtWarp, kind, words, count);
}

const WaveWords& exchange_in_wave(int kind, const uint32_t* words, int count) {
  return exchange_among(block->waves, State::kAtWave, kind, words, count);
}

namespace {

/// Ends the program where a launch would be refused: it asks for more than every block has only
/// where the dynamic part alone is larger.
void check_shared_memory() {
  constexpr size_t kWithoutAsking = size_t{48} << 10;
  const bool is_asked = block->dynamic_bytes > kWithoutAsking;
  if (block->declared_bytes + block->dynamic_bytes >
      (is_asked ? current_chip.shared_bytes : kWithoutAsking))
    stop("a block declares and asks for more shared memory than it may have");
}

}  // namespace

void* shared_memory(const void* declaration, size_t bytes, size_t alignment) {
  const auto [found, is_new] = block->shared.try_emplace(declaration, bytes, alignment);
  if (is_new) {
    found->second.fill_with_nan();
    block->declared_bytes += bytes;
    check_shared_memory();
  }
  return found->second.data();
}

std::byte* dynamic_shared_memory() {
  return block->dynamic->data();
}

void start_copy(void* to, const void* from, bool exists) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      (exists && reinterpret_cast<uintptr_t>(from) % 16 != 0))
    stop("a copy of 16 bytes is not aligned");
  std::memset(to, 0xff, 16);
  block->copies[block->running].push_back({to, from, exists});
}

void finish_copies() {
  std::vector<Copy>& copies = block->copies[block->running];
  for (const Copy& copy : copies)
    if (copy.exists)
      std::memcpy(copy.to, copy.from, 16);
    else
      std::memset(copy.to, 0, 16);
  copies.clear();
}

void fence_registers() {
  block->products[block->running].fence();
}

void start_product(std::function<void()> product) {
  if (!block->products[block->running].start(std::move(product)))
    stop("a product may begin before its registers are written");
}

void commit_products() {
  block->products[block->running].commit();
}

void await_products(int left) {
  block->products[block->running].await(static_cast<size_t>(left));
}

uint32_t shared_address(const void* data) {
  const auto offset =
      static_cast<size_t>(static_cast<const std::byte*>(data) - block->dynamic->data());
  if (offset >= block->dynamic_bytes) stop("an address is not in dynamic shared memory");
  return kDynamicAddress + static_cast<uint32_t>(offset);
}

uint16_t published_element(uint32_t address) {
  const size_t offset = size_t{address} - kDynamicAddress;
  if (offset + 2 > block->dynamic_bytes) stop("a product reads outside of dynamic shared memory");
  uint16_t element, now;
  std::memcpy(&element, block->published.data() + offset, 2);
  std::memcpy(&now, block->dynamic->data() + offset, 2);
  if (element != now) stop("a product reads memory that was not published, or changes meanwhile");
  return element;
}

void publish_shared() {
  block->has_published[block->running] = true;
}

int current_device() {
  return device;
}

void set_current_device(int wanted) {
  device = wanted;
}

const Chip& chip() {
  return current_chip;
}

void set_chip(Chip wanted) {
  current_chip = std::move(wanted);
}

void fail_copies_after(int copies) {
  copies_left = copies;
}

bool takes_copy() {
  if (copies_left == 0) return false;
  if (copies_left > 0) --copies_left;
  return true;
}

void set_last_error(const std::string& error) {
  last_error = error;
}

void forget_last_error() {
  last_error.clear();
}

void check_last_error(const char* what) {
  if (!last_error.empty()) fail("simulated: ", what, ": ", std::exchange(last_error, ""));
}

void set_order(Order wanted) {
  asked_order = wanted;
}

void run_kernel(Dim grid, Dim dim, size_t shared_bytes, const std::function<void()>& thread) {
  const size_t count = size_t{dim.x} * dim.y * dim.z;
  if (count % kWarpLanes != 0 || count > 1024) stop("a block is no whole number of warps");
  if (grid.y > 65535 || grid.z > 65535 || grid.x == 0 || grid.y == 0 || grid.z == 0)
    stop("a grid has no block, or more in y or z than a device takes");
  if (shared_bytes > current_chip.shared_bytes)
    stop("a block asks for more shared memory than there is");
  Block state;
  order = asked_order;
  state.states.resize(count);
  state.threads.resize(count);
  state.warps.resize(count / kWarpLanes);
  state.waves.resize(count / kWaveLanes);
  state.copies.resize(count);
  state.products.resize(count);
  state.has_published.resize(count);
  state.published.resize(shared_bytes);
  state.dynamic.emplace(shared_bytes, 16);
  state.dynamic_bytes = shared_bytes;
  block = &state;
  const size_t blocks = size_t{grid.x} * grid.y * grid.z;
  for (size_t turn = 0; turn < blocks; ++turn) {
    const size_t b = order == Order::kReverse ? blocks - 1 - turn : turn;
    const Dim at{static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                 static_cast<unsigned>(b / grid.x / grid.y)};
    for (size_t t = 0; t < count; ++t)
      state.threads[t] = {
          {static_cast<unsigned>(t % dim.x), static_cast<unsigned>(t / dim.x % dim.y),
           static_cast<unsigned>(t / dim.x / dim.y)},
          at,
          dim,
          grid};
    run_block(thread);
  }
  block = nullptr;
}

Queue::~Queue() {
  run_until(pushed_);
  const std::lock_guard lock(queue_mutex());
  queues().erase(this);
}

void Queue::push(std::function<void()> operation, bool is_kernel) {
  if (device_ != current_device()) stop("work is given to another device than the current one");
  const std::lock_guard lock(queue_mutex());
  if (captured_) return captured_->push_back(std::move(operation));
  queues().insert(this);
  pending_.push_back({std::move(operation), is_kernel});
  counted.launches += is_kernel ? 1 : 0;
  ++pushed_;
}

uint64_t Queue::position() const {
  const std::lock_guard lock(queue_mutex());
  return pushed_;
}

void Queue::run_until(uint64_t position) {
  const std::lock_guard lock(queue_mutex());
  while (done_ < position) {
    const Operation operation = std::move(pending_.front());
    pending_.pop_front();
    ++done_;
    operation.run();
  }
}

void Queue::wait_for_all() {
  const std::lock_guard lock(queue_mutex());
  const auto is_kernel = [](const Operation& next) { return next.is_kernel; };
  counted.waits += std::ranges::any_of(pending_, is_kernel) ? 1 : 0;
  run_until(pushed_);
}

Counts counts() {
  const std::lock_guard lock(queue_mutex());
  return counted;
}

void count_anew() {
  const std::lock_guard lock(queue_mutex());
  counted = {};
}

void count_copy(size_t bytes) {
  const std::lock_guard lock(queue_mutex());
  ++counted.copies;
  counted.copied_bytes += bytes;
}

void Queue::capture_into(std::vector<std::function<void()>>* target) {
  const std::lock_guard lock(queue_mutex());
  capturing += (target ? 1 : 0) - (captured_ ? 1 : 0);
  captured_ = target;
}

void check_not_capturing(const char* what) {
  if (capturing > 0) stop(what);
}

void run_everything() {
  const std::lock_guard lock(queue_mutex());
  for (Queue* queue : queues()) queue->run_until(queue->position());
}

}  // namespace kvcal::gpu::simulator
