#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// A GPU in host memory, so that kernels/gpu is tested where there is none: every thread of a block
/// is a fiber, barriers and warp exchanges switch between them, blocks run one after the other.
/// Streams run as late as they may: an operation waits until somebody synchronizes, so a missing
/// wait between streams, or a host that reads too early, shows as wrong bytes. A wrong barrier ends
/// the program with a message, as does work given to a device that is not the current one; memory
/// starts as NaN and is aligned no better than promised; out-of-bounds accesses are the sanitizers'
/// to find.
namespace kvcal::gpu {
class VendorMatmul;
struct MatmulOptions;
}  // namespace kvcal::gpu

namespace kvcal::gpu::simulator {

/// Ends the program, telling what a real device would not have borne.
[[noreturn]] void stop(const char* what);
/// Stops it, with that reason, where operations are captured.
void check_not_capturing(const char* what);

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

constexpr int kWarpLanes = 32;
constexpr int kWarpWords = 8;  ///< 32-bit words a lane may exchange at once

/// Indices and sizes of the running thread.
struct ThreadState {
  Dim thread_index{0, 0, 0}, block_index{0, 0, 0}, block_dim, grid_dim;
};
const ThreadState& current();

/// Waits for all threads of the block.
void sync_threads();
/// Words that the warp's lanes passed, [kWarpLanes][kWarpWords]; valid until the exchange after the
/// next. All lanes must take part with the same kind.
using WarpWords = uint32_t[kWarpLanes][kWarpWords];
const WarpWords& exchange(int kind, const uint32_t* words, int count);
int lane();
/// The same for the 64 lanes of a wavefront, two warps.
constexpr int kWaveLanes = 64;
using WaveWords = uint32_t[kWaveLanes][kWarpWords];
const WaveWords& exchange_in_wave(int kind, const uint32_t* words, int count);

/// Shared memory of the running block for one declaration, aligned to alignment and no better, or
/// the dynamic part of the launch.
void* shared_memory(const void* declaration, size_t bytes, size_t alignment);
std::byte* dynamic_shared_memory();

/// Copies 16 bytes, or zeros where nothing exists, when the thread calls finish_copies; until then
/// the target is NaN. A thread must not end with copies under way.
void start_copy(void* to, const void* from, bool exists);
void finish_copies();

/// Asynchronous products of the running thread: they run when it waits until at most so many
/// committed groups are left. One without a fence since the last wait ends the program, as does a
/// thread that ends with products under way.
void fence_registers();
void start_product(std::function<void()> product);
void commit_products();
void await_products(int left);

/// Where dynamic shared memory is, for instructions that take addresses: aligned no better than
/// promised.
uint32_t shared_address(const void* data);
/// The 16 bits that an asynchronous product reads there. It must be what was there when all threads
/// of the block had called publish_shared and met at a barrier: a write that was not published, or
/// that comes while products may read, ends the program.
uint16_t published_element(uint32_t address);
void publish_shared();

/// The order in which threads of a block, and blocks, take their turns. Results must not depend on
/// it. kGreedy: a warp runs until all its lanes wait for the block, so that warps are far apart.
enum class Order { kForward, kReverse, kGreedy };
void set_order(Order order);

/// Whether backends made from now on find a vendor's matrix library.
void set_vendor_matmul(bool exists);
/// The same, and which one; null: no other than by the call above.
using MakeMatmul = std::function<std::unique_ptr<VendorMatmul>(const MatmulOptions&)>;
void set_vendor_matmul(MakeMatmul make);

/// What backends made from now on take the chip for.
struct Chip {
  std::string architecture = "simulated";
  size_t shared_bytes = size_t{227} << 10;  ///< of a block
  bool decodes_fp8 = false;                 ///< has instructions for it
};
const Chip& chip();
void set_chip(Chip chip);

/// Lets copies fail after so many more; negative: none fails.
void fail_copies_after(int copies);
bool takes_copy();

/// What devices were asked for since the last count_anew.
struct Counts {
  int64_t launches = 0, copies = 0;
  uint64_t copied_bytes = 0;
  int64_t waits = 0;  ///< of the host for all of a stream, with kernels that had not run yet
};
Counts counts();
void count_anew();
void count_copy(size_t bytes);

/// An error that stays until it is forgotten, and that the next launch takes for its own.
void set_last_error(const std::string& error);
void forget_last_error();
/// Throws Error where there is one.
void check_last_error(const char* what);

/// Runs one kernel to its end.
void run_kernel(Dim grid, Dim block, size_t shared_bytes, const std::function<void()>& thread);

/// The device that this system thread's calls go to.
int current_device();
void set_current_device(int device);

/// Work in order, run when something needs it, of the device that is current when it is made.
class Queue {
 public:
  ~Queue();
  int device() const { return device_; }
  void push(std::function<void()> operation, bool is_kernel = false);
  /// The number of operations pushed so far.
  uint64_t position() const;
  /// Runs operations until that many are done.
  void run_until(uint64_t position);
  /// Runs all for the host, which waits.
  void wait_for_all();
  /// While set, operations go there and do not run.
  void capture_into(std::vector<std::function<void()>>* target);

 private:
  struct Operation {
    std::function<void()> run;
    bool is_kernel = false;
  };
  const int device_ = current_device();
  std::deque<Operation> pending_;
  uint64_t pushed_ = 0, done_ = 0;
  std::vector<std::function<void()>>* captured_ = nullptr;
};
/// Runs whatever is pending anywhere.
void run_everything();

/// Device memory, filled with NaN. Null where the limit is reached. Neither may be called while a
/// queue captures.
void* allocate(size_t bytes);
void release(void* data);
/// Pinned host memory: neither released while copies from it wait, nor counted as the device's.
void* allocate_pinned(size_t bytes);
void release_pinned(void* data);
/// Pinned bytes that are allocated now.
size_t pinned_bytes();
/// Bytes that may be allocated at a time.
void set_memory_limit(size_t bytes);
size_t free_memory();
size_t total_memory();

}  // namespace kvcal::gpu::simulator
