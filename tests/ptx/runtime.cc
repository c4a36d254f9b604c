// Stands in for the CUDA runtime: kernels, memory and the device. Streams are in streams.cc.
#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "device_memory.h"
#include "launch.h"
#include "module.h"
#include "report.h"

namespace kvcal::ptx {
namespace {

constexpr int kRuntimeVersion = 13000;
/// Most shared memory of a block, on both chips that are judged: 227 KiB on sm_90, 163 on sm_80.
size_t most_shared_bytes() {
  return size_t{chip() == 90 ? 227u : 163u} << 10;
}
constexpr size_t kSharedWithoutAsking = size_t{48} << 10;
constexpr uint32_t kMostThreads = 1024, kMostBlocksYz = 65535;
/// Source: CUDA programming guide; more need a newer driver and compiler than we ask for.
constexpr uint32_t kMostParameterBytes = 4096;

/// A kernel as the program knows it: by the address of its stub.
struct Function {
  Module* module = nullptr;
  std::string name;
  size_t allowed_shared = kSharedWithoutAsking;
};

struct Program {
  std::mutex mutex;
  std::vector<std::unique_ptr<Module>> modules;
  std::map<const void*, Function> functions;
  std::set<std::string> launched;
};
Program& program() {
  static Program* const all = new Program;
  return *all;
}

/// Appends the names of the kernels that were launched to $KVCAL_PTX_LAUNCHED at the program's end.
struct LaunchedFile {
  ~LaunchedFile() {
    const char* const path = std::getenv("KVCAL_PTX_LAUNCHED");
    if (!path) return;
    std::ofstream file(path, std::ios::app);
    for (const std::string& name : program().launched) file << name << "\n";
  }
};
const LaunchedFile launched_file;

/// Arguments of <<<>>> between the two calls that nvcc makes of it.
struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local Configuration configuration;

Function* find_function(const void* stub) {
  const std::lock_guard lock(program().mutex);
  const auto found = program().functions.find(stub);
  return found == program().functions.end() ? nullptr : &found->second;
}

/// Why a device would not start the kernel; "" where it would.
std::string launch_problem(const Kernel& kernel, const Function& function, const Grid& grid) {
  const uint64_t threads = uint64_t{grid.threads[0]} * grid.threads[1] * grid.threads[2];
  for (const uint32_t size : grid.blocks)
    if (size == 0) return "a grid without blocks";
  if (grid.blocks[0] > 0x7fffffffu || grid.blocks[1] > kMostBlocksYz ||
      grid.blocks[2] > kMostBlocksYz)
    return "too many blocks";
  if (threads == 0 || threads > kMostThreads || grid.threads[2] > 64)
    return std::to_string(threads) + " threads in a block";
  if (kernel.most_threads > 0 && threads > kernel.most_threads)
    return std::to_string(threads) + " threads in a block, of which its launch bounds allow " +
           std::to_string(kernel.most_threads);
  if (threads % kLanes != 0)
    return std::to_string(threads) + " threads in a block: the judge runs whole warps";
  const size_t shared = kernel.shared_bytes + grid.dynamic_shared;
  if (shared > function.allowed_shared)
    return std::to_string(shared) + " bytes of shared memory, allowed are " +
           std::to_string(function.allowed_shared);
  if (kernel.parameter_bytes > kMostParameterBytes)
    return std::to_string(kernel.parameter_bytes) + " bytes of parameters";
  return "";
}

std::vector<std::byte> gathered(const Kernel& kernel, void* const* arguments) {
  std::vector<std::byte> bytes(kernel.parameter_bytes, std::byte{0xff});
  for (size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(bytes.data() + kernel.parameters[i].offset, arguments[i],
                kernel.parameters[i].bytes);
  return bytes;
}

cudaError_t launch(const void* stub, dim3 blocks, dim3 threads, void** arguments, size_t shared,
                   cudaStream_t stream) {
  const Function* const function = find_function(stub);
  if (!function) return failed(cudaErrorInvalidDeviceFunction);
  const Kernel& kernel = function->module->kernel(function->name);
  {
    const std::lock_guard lock(program().mutex);
    program().launched.insert(kernel.name);
  }
  const Grid grid{{blocks.x, blocks.y, blocks.z}, {threads.x, threads.y, threads.z}, shared};
  if (const std::string problem = launch_problem(kernel, *function, grid); !problem.empty()) {
    note("kernel " + kernel.name + " does not start: " + problem);
    return failed(cudaErrorInvalidConfiguration);
  }
  issue(stream, [&kernel, grid, parameters = gathered(kernel, arguments)] {
    run_kernel(kernel, grid, parameters);
  });
  return cudaSuccess;
}

cudaError_t allocate_into(void** result, size_t bytes, bool is_device) {
  *result = nullptr;
  if (bytes == 0) return cudaSuccess;
  *result = allocate(bytes, is_device);
  return *result ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

cudaError_t release_from(void* data, bool is_device) {
  if (!data || release(data, is_device)) return cudaSuccess;
  note("released memory was not allocated");
  return failed(cudaErrorInvalidValue);
}

}  // namespace

Parsed parse_everything() {
  Parsed all;
  for (const auto& module : program().modules) {
    const Parsed parsed = module->parse_all();
    all.kernels.insert(all.kernels.end(), parsed.kernels.begin(), parsed.kernels.end());
    all.instructions += parsed.instructions;
  }
  return all;
}

}  // namespace kvcal::ptx

using namespace kvcal::ptx;

// Declared here as nvcc's host code calls them; no header declares all of them.
extern "C" {

void** __cudaRegisterFatBinary(void* fat_binary) {
  const std::lock_guard lock(program().mutex);
  program().modules.push_back(std::make_unique<Module>(fat_binary));
  return reinterpret_cast<void**>(program().modules.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** module, const char* stub, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  const std::lock_guard lock(program().mutex);
  program().functions[stub] = {reinterpret_cast<Module*>(module), name};
}
void __cudaRegisterVar(void**, char*, char*, const char* name, int, size_t, int, int) {
  note(std::string("the host cannot reach the variable ") + name + " through the judge");
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configuration = {grid, block, shared, static_cast<cudaStream_t>(stream)};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t stream) {
  return launch(stub, grid, block, arguments, shared, stream);
}

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  Function* const function = find_function(stub);
  if (!function) return failed(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  const size_t all =
      function->module->kernel(function->name).shared_bytes + static_cast<size_t>(value);
  if (value < 0 || all > most_shared_bytes()) return failed(cudaErrorInvalidValue);
  function->allowed_shared = std::max(kSharedWithoutAsking, all);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "PTX on the CPU, sm_%d", chip());
  properties->major = chip() / 10;
  properties->minor = chip() % 10;
  properties->multiProcessorCount = 4;  // few, so that grids are small
  properties->sharedMemPerBlock = kSharedWithoutAsking;
  properties->sharedMemPerBlockOptin = most_shared_bytes();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  std::snprintf(id, static_cast<size_t>(size), "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = kRuntimeVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kRuntimeVersion;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = free_device_bytes();
  *total = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  return allocate_into(data, bytes, true);
}
cudaError_t cudaFree(void* data) {
  return release_from(data, true);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return allocate_into(data, bytes, false);
}
cudaError_t cudaFreeHost(void* data) {
  return release_from(data, false);
}

}  // extern "C"
