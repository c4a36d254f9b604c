#pragma once

// The only file that knows the vendor: CUDA, HIP, or the simulated device of the tests. The rest of
// kernels/gpu uses streams, launches, lanes and warps of 32 lanes; a wavefront of 64 counts as two
// warps.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "quant/fp8.h"
#include "quant/half.h"

#if defined(KVCAL_GPU_SIMULATED)
#include "simulator/language.h"
#elif defined(__HIP_PLATFORM_AMD__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define KVCAL_VENDOR(name) hip##name
#else
#include <cuda_runtime.h>
#define KVCAL_VENDOR(name) cuda##name
#endif

namespace kvcal::gpu {

#if defined(KVCAL_GPU_SIMULATED)
inline constexpr const char* kDeviceName = "simulated";
inline constexpr const char* kVendorName = "simulated";
#elif defined(__HIPCC__)
inline constexpr const char* kDeviceName = "hip";
inline constexpr const char* kVendorName = "HIP";
#else
inline constexpr const char* kDeviceName = "cuda";
inline constexpr const char* kVendorName = "CUDA";
#endif

struct DeviceProperties {
  std::string name;          ///< "NVIDIA H100 80GB HBM3"
  std::string architecture;  ///< "sm_90", "gfx90a"
  int multiprocessors = 0;
  size_t shared_bytes_per_block = 0;  ///< most that a launch can request
};

/// Number of devices. Throws Error with the missing part where there is none.
int device_count();
/// The chips that this program has code for, as "80,86-real": see has_code_for in chips.h.
std::string_view compiled_chips();
DeviceProperties properties(int device);
/// Address on the PCI bus as sysfs names it: "0000:3b:00.0"; "" where the vendor does not tell.
/// Needs no context of the device.
std::string pci_bus_id(int device);
/// Selects the device for calls of this system thread.
void use_device(int device);

struct MemoryState {
  size_t free = 0, total = 0;
};
MemoryState memory_state();
/// nullptr where memory does not suffice.
void* allocate_device(size_t bytes);
void release_device(void* data) noexcept;
/// Host memory that all devices access directly. nullptr where memory does not suffice.
void* allocate_pinned_host(size_t bytes);
void release_pinned_host(void* data) noexcept;

class Event;

/// An in-order queue of work; calls return before the work is done.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void copy(void* to, const void* from, size_t bytes);
  void fill_zero(void* data, size_t bytes);
  /// Makes later work wait for the event.
  void wait(const Event& event);
  void synchronize();
  /// Records the operations that body issues, without running them.
  std::unique_ptr<class Graph> record(const std::function<void()>& body);

#if defined(KVCAL_GPU_SIMULATED)
  simulator::Queue* handle = nullptr;
#else
  KVCAL_VENDOR(Stream_t) handle = nullptr;
#endif
};

/// A point of a stream. An event that was never recorded counts as reached.
class Event {
 public:
  /// timed: since() may be called.
  explicit Event(bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream);
  void synchronize() const;
  /// Milliseconds between two reached points.
  double since(const Event& start) const;

#if defined(KVCAL_GPU_SIMULATED)
  const int device = simulator::current_device();
  simulator::Queue* queue = nullptr;
  uint64_t position = 0;
#else
  KVCAL_VENDOR(Event_t) handle = nullptr;
#endif
};

class Graph {
 public:
  ~Graph();
  void play(Stream& stream);

#if defined(KVCAL_GPU_SIMULATED)
  std::vector<std::function<void()>> operations;
#else
  KVCAL_VENDOR(GraphExec_t) handle = nullptr;
#endif
};

/// Size of a kernel launch.
struct Launch {
  Stream& stream;
  int64_t blocks = 1;                   ///< x of the grid, up to 2^31 - 1
  unsigned blocks_y = 1, blocks_z = 1;  ///< up to 65535 each
  unsigned threads = 256;               ///< of a block; whole warps
  size_t shared_bytes = 0;
};

#if !defined(KVCAL_GPU_SIMULATED)
/// Throws Error with the vendor's message.
void check(KVCAL_VENDOR(Error_t) status, const char* what);
#endif
/// Forgets the error of an earlier call, which would otherwise count as the next launch's.
void forget_last_error() noexcept;

/// Shared memory that a block may have, declared and dynamic together, unless its launch asks for
/// more: launch does where the dynamic part alone is larger.
constexpr size_t kSharedWithoutAsking = size_t{48} << 10;

/// Starts a kernel. Throws Error naming it where that fails.
template <class... Parameters, class... Arguments>
void launch(const char* what, const Launch& where, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  if (where.blocks == 0) return;
  KVCAL_CHECK(where.blocks > 0 && where.blocks < (int64_t{1} << 31));
#if defined(KVCAL_GPU_SIMULATED)
  simulator::check_last_error(what);
  where.stream.handle->push(
      [kernel,
       grid = simulator::Dim{static_cast<unsigned>(where.blocks), where.blocks_y, where.blocks_z},
       threads = where.threads, shared = where.shared_bytes,
       ... values = std::decay_t<Parameters>(std::forward<Arguments>(arguments))] {
        simulator::run_kernel(grid, {threads, 1, 1}, shared, [&] { kernel(values...); });
      },
      true);
#else
  if (where.shared_bytes > kSharedWithoutAsking)
    check(KVCAL_VENDOR(FuncSetAttribute)(reinterpret_cast<const void*>(kernel),
                                         KVCAL_VENDOR(FuncAttributeMaxDynamicSharedMemorySize),
                                         static_cast<int>(where.shared_bytes)),
          what);
  kernel<<<dim3(static_cast<unsigned>(where.blocks), where.blocks_y, where.blocks_z),
           dim3(where.threads), where.shared_bytes, where.stream.handle>>>(
      std::forward<Arguments>(arguments)...);
  check(KVCAL_VENDOR(GetLastError)(), what);
#endif
}

// ---- inside kernels ----

/// Unrolls the next loop, over values in registers.
#if defined(KVCAL_GPU_SIMULATED)
#define KVCAL_UNROLL
#define KVCAL_UNROLL_BY(times)
#else
#define KVCAL_PRAGMA(words) _Pragma(#words)
#define KVCAL_UNROLL _Pragma("unroll")
#define KVCAL_UNROLL_BY(times) KVCAL_PRAGMA(unroll times)
#endif

#if defined(KVCAL_GPU_SIMULATED)
/// Declares name, of a type without constructors, shared by the threads of a block.
#define KVCAL_SHARED(type, name)     \
  static const char name##_site = 0; \
  type& name = *static_cast<type*>(  \
      ::kvcal::gpu::simulator::shared_memory(&name##_site, sizeof(type), alignof(type)))
#else
#define KVCAL_SHARED(type, name) __shared__ type name
#endif

/// Shared memory of Launch::shared_bytes; 16-byte aligned.
__device__ inline std::byte* dynamic_shared() {
#if defined(KVCAL_GPU_SIMULATED)
  return simulator::dynamic_shared_memory();
#else
  extern __shared__ __align__(16) unsigned char kvcal_dynamic_shared[];
  return reinterpret_cast<std::byte*>(kvcal_dynamic_shared);
#endif
}

constexpr int kWarp = 32;
__device__ inline int lane() {
  return static_cast<int>(threadIdx.x % kWarp);
}
__device__ inline int warp() {
  return static_cast<int>(threadIdx.x / kWarp);
}

/// Value of the lane whose number differs by the bits of mask. All 32 lanes must take part.
template <class T>
__device__ inline T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) == 4);
#if defined(KVCAL_GPU_SIMULATED)
  return simulator::shuffle(value, simulator::lane() ^ mask);
#elif defined(__HIPCC__)
  return __shfl_xor(value, mask, kWarp);
#else
  return __shfl_xor_sync(0xffffffffu, value, mask);
#endif
}
/// Value of lane source. All 32 lanes must take part.
template <class T>
__device__ inline T shuffle(T value, int source) {
  static_assert(sizeof(T) == 4);
#if defined(KVCAL_GPU_SIMULATED)
  return simulator::shuffle(value, source);
#elif defined(__HIPCC__)
  return __shfl(value, source, kWarp);
#else
  return __shfl_sync(0xffffffffu, value, source);
#endif
}
/// Makes earlier writes of the warp's lanes to shared memory visible.
__device__ inline void sync_warp() {
#if defined(KVCAL_GPU_SIMULATED)
  simulator::sync_warp();
#elif defined(__HIPCC__)
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#else
  __syncwarp();
#endif
}

/// FP8 codes of two values as in quant/fp8.h, the first in the low byte. Returns false, without a
/// result, where the chip cannot encode. NaN loses its sign; callers handle it.
__device__ inline bool encode_pair_by_chip([[maybe_unused]] float first,
                                           [[maybe_unused]] float second,
                                           [[maybe_unused]] fp8::Format format,
                                           [[maybe_unused]] uint16_t& codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (format == fp8::Format::kE4m3Fn) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
    return true;
  }
  if (format == fp8::Format::kE5m2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
    return true;
  }
#endif
  return false;
}

/// Whether decode_codes_by_chip decodes the format.
__device__ inline bool decodes_by_chip([[maybe_unused]] fp8::Format format) {
#if defined(KVCAL_GPU_SIMULATED)
  return simulator::chip().decodes_fp8 && format != fp8::Format::kE4m3Fnuz;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return format != fp8::Format::kE4m3Fnuz;
#else
  return false;
#endif
}
/// Four FP8 codes, from the low byte on, as F16, in which they are exact: two in low, two in high.
/// NaN stays NaN.
__device__ inline void decode_codes_by_chip([[maybe_unused]] uint32_t four,
                                            [[maybe_unused]] fp8::Format format, uint32_t& low,
                                            uint32_t& high) {
  low = high = 0;
#if defined(KVCAL_GPU_SIMULATED)
  for (int i = 0; i < 4; ++i) {
    const auto code = static_cast<uint8_t>(four >> (8 * i));
    (i < 2 ? low : high) |= static_cast<uint32_t>(to_f16(fp8::decode(code, format)).bits)
                            << (i % 2 * 16);
  }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (format == fp8::Format::kE4m3Fn)
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; "
        "cvt.rn.f16x2.e4m3x2 %1, b;}"
        : "=r"(low), "=r"(high)
        : "r"(four));
  else
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e5m2x2 %0, a; "
        "cvt.rn.f16x2.e5m2x2 %1, b;}"
        : "=r"(low), "=r"(high)
        : "r"(four));
#endif
}
/// Two F16, the first in the low half, as float32.
__device__ inline void floats_of_halves(uint32_t halves, float& first, float& second) {
#if defined(__CUDA_ARCH__)
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(first), "=f"(second)
      : "r"(halves));
#else
  first = to_float(F16{static_cast<uint16_t>(halves)});
  second = to_float(F16{static_cast<uint16_t>(halves >> 16)});
#endif
}

// Instructions of a vendor's chips: PTX; matrix instructions of a warp (warp_matrix.h) and of a
// wavefront (wave_matrix.h), which the simulated device has both; and of a warpgroup
// (warpgroup_matrix.h), which code for sm_90a alone may have.
#if defined(KVCAL_GPU_SIMULATED)
#define KVCAL_HAS_PTX 0
#define KVCAL_HAS_WARP_MATRIX 1
#define KVCAL_HAS_WAVE_MATRIX 1
#elif defined(__HIPCC__)
#define KVCAL_HAS_PTX 0
#define KVCAL_HAS_WARP_MATRIX 0
#define KVCAL_HAS_WAVE_MATRIX 1
#else
#define KVCAL_HAS_PTX 1
#define KVCAL_HAS_WARP_MATRIX 1
#define KVCAL_HAS_WAVE_MATRIX 0
#endif

#if defined(KVCAL_GPU_SIMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KVCAL_CHIP_HAS_WARPGROUP_MATRIX 1
#else
#define KVCAL_CHIP_HAS_WARPGROUP_MATRIX 0
#endif

}  // namespace kvcal::gpu
