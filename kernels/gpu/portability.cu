#include "kernels/gpu/portability.h"

#include <cstring>

#include "kernels/gpu/chips.h"

namespace kvcal::gpu {

#if defined(KVCAL_GPU_SIMULATED)

int device_count() {
  return 2;
}
std::string_view compiled_chips() {
  return "simulated,80,86-real,89-real,90a-real,gfx90a";
}
DeviceProperties properties(int) {
  const simulator::Chip& chip = simulator::chip();
  return {"simulated device", chip.architecture, 4, chip.shared_bytes};
}
std::string pci_bus_id(int device) {
  return "0000:0" + std::to_string(device) + ":00.0";
}
void forget_last_error() noexcept {
  simulator::forget_last_error();
}
void use_device(int device) {
  simulator::set_current_device(device);
}
MemoryState memory_state() {
  return {simulator::free_memory(), simulator::total_memory()};
}
void* allocate_device(size_t bytes) {
  return simulator::allocate(bytes);
}
void release_device(void* data) noexcept {
  simulator::release(data);
}
void* allocate_pinned_host(size_t bytes) {
  return simulator::allocate_pinned(bytes);
}
void release_pinned_host(void* data) noexcept {
  simulator::release_pinned(data);
}

Stream::Stream() : handle(new simulator::Queue) {}
Stream::~Stream() {
  delete handle;
}
void Stream::copy(void* to, const void* from, size_t bytes) {
  if (!simulator::takes_copy()) fail("simulated: copying: the device is gone");
  simulator::count_copy(bytes);
  handle->push([=] { std::memcpy(to, from, bytes); });
}
void Stream::fill_zero(void* data, size_t bytes) {
  handle->push([=] { std::memset(data, 0, bytes); });
}
void Stream::wait(const Event& event) {
  if (event.queue)
    handle->push([queue = event.queue, position = event.position] { queue->run_until(position); });
}
void Stream::synchronize() {
  handle->wait_for_all();
}
std::unique_ptr<Graph> Stream::record(const std::function<void()>& body) {
  auto graph = std::make_unique<Graph>();
  handle->capture_into(&graph->operations);
  try {
    body();
  } catch (...) {
    handle->capture_into(nullptr);
    forget_last_error();
    throw;
  }
  handle->capture_into(nullptr);
  return graph;
}

Event::Event(bool) {}
Event::~Event() = default;
void Event::record(Stream& stream) {
  if (device != simulator::current_device() || device != stream.handle->device())
    simulator::stop("an event is recorded on another device than it was made on");
  queue = stream.handle;
  position = queue->position();
}
void Event::synchronize() const {
  if (queue) queue->run_until(position);
}
/// An operation takes a millisecond.
double Event::since(const Event& start) const {
  return start.queue == queue ? static_cast<double>(position - start.position) : 0.0;
}

Graph::~Graph() = default;
void Graph::play(Stream& stream) {
  for (const auto& operation : operations) stream.handle->push(operation);
}

#else

void check(KVCAL_VENDOR(Error_t) status, const char* what) {
  if (status == KVCAL_VENDOR(Success)) return;
  forget_last_error();
  fail(kVendorName, ": ", what, ": ", KVCAL_VENDOR(GetErrorString)(status));
}
void forget_last_error() noexcept {
  (void)KVCAL_VENDOR(GetLastError)();
}

std::string_view compiled_chips() {
  return KVCAL_GPU_CHIPS;
}

namespace {

/// Versions of the driver and of the runtime that this program has; AMD's do not say what fits.
DriverVersions driver_versions() {
  DriverVersions versions;
#if !defined(__HIPCC__)
  (void)cudaDriverGetVersion(&versions.driver);
  (void)cudaRuntimeGetVersion(&versions.runtime);
#endif
  return versions;
}

}  // namespace

int device_count() {
  int count = 0;
  const auto status = KVCAL_VENDOR(GetDeviceCount)(&count);
  if (status == KVCAL_VENDOR(Success) && count > 0) return count;
  forget_last_error();
  fail(no_device_text(kVendorName, driver_versions(),
                      status == KVCAL_VENDOR(Success) ? "" : KVCAL_VENDOR(GetErrorString)(status)));
}

DeviceProperties properties(int device) {
#if defined(__HIPCC__)
  hipDeviceProp_t found;
#else
  cudaDeviceProp found;
#endif
  check(KVCAL_VENDOR(GetDeviceProperties)(&found, device), "reading the device's properties");
#if defined(__HIPCC__)
  std::string architecture = found.gcnArchName;  // "gfx90a:sramecc+:xnack-"
  architecture = architecture.substr(0, architecture.find(':'));
  const size_t shared = found.sharedMemPerBlock;
#else
  const std::string architecture =
      "sm_" + std::to_string(found.major) + std::to_string(found.minor);
  const size_t shared = found.sharedMemPerBlockOptin;
#endif
  return {found.name, architecture, found.multiProcessorCount, shared};
}

std::string pci_bus_id(int device) {
  char id[32] = "";
  if (KVCAL_VENDOR(DeviceGetPCIBusId)(id, sizeof id, device) != KVCAL_VENDOR(Success)) {
    forget_last_error();
    return "";
  }
  std::string name(id);
  for (char& letter : name)
    if (letter >= 'A' && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  return name;
}

void use_device(int device) {
  check(KVCAL_VENDOR(SetDevice)(device), "choosing the device");
}

MemoryState memory_state() {
  MemoryState state;
  check(KVCAL_VENDOR(MemGetInfo)(&state.free, &state.total), "asking for free memory");
  return state;
}

void* allocate_device(size_t bytes) {
  void* data = nullptr;
  if (KVCAL_VENDOR(Malloc)(&data, bytes) == KVCAL_VENDOR(Success)) return data;
  forget_last_error();
  return nullptr;
}
void release_device(void* data) noexcept {
  (void)KVCAL_VENDOR(Free)(data);
}

void* allocate_pinned_host(size_t bytes) {
  void* data = nullptr;
#if defined(__HIPCC__)
  const auto status = hipHostMalloc(&data, bytes, hipHostMallocPortable);
#else
  const auto status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
#endif
  if (status == KVCAL_VENDOR(Success)) return data;
  forget_last_error();
  return nullptr;
}
void release_pinned_host(void* data) noexcept {
#if defined(__HIPCC__)
  (void)hipHostFree(data);
#else
  (void)cudaFreeHost(data);
#endif
}

Stream::Stream() {
  check(KVCAL_VENDOR(StreamCreateWithFlags)(&handle, KVCAL_VENDOR(StreamNonBlocking)),
        "making a stream");
}
Stream::~Stream() {
  (void)KVCAL_VENDOR(StreamDestroy)(handle);
}
void Stream::copy(void* to, const void* from, size_t bytes) {
  check(KVCAL_VENDOR(MemcpyAsync)(to, from, bytes, KVCAL_VENDOR(MemcpyDefault), handle), "copying");
}
void Stream::fill_zero(void* data, size_t bytes) {
  check(KVCAL_VENDOR(MemsetAsync)(data, 0, bytes, handle), "filling memory with zeros");
}
void Stream::wait(const Event& event) {
  check(KVCAL_VENDOR(StreamWaitEvent)(handle, event.handle, 0), "waiting for another stream");
}
void Stream::synchronize() {
  check(KVCAL_VENDOR(StreamSynchronize)(handle), "running on the device");
}

std::unique_ptr<Graph> Stream::record(const std::function<void()>& body) {
  KVCAL_VENDOR(Graph_t) written = nullptr;
  check(KVCAL_VENDOR(StreamBeginCapture)(handle, KVCAL_VENDOR(StreamCaptureModeRelaxed)),
        "recording");
  try {
    body();
  } catch (...) {
    (void)KVCAL_VENDOR(StreamEndCapture)(handle, &written);
    if (written) (void)KVCAL_VENDOR(GraphDestroy)(written);
    forget_last_error();
    throw;
  }
  check(KVCAL_VENDOR(StreamEndCapture)(handle, &written), "recording");
  auto graph = std::make_unique<Graph>();
#if defined(__HIPCC__)
  const auto status = hipGraphInstantiate(&graph->handle, written, nullptr, nullptr, 0);
#else
  const auto status = cudaGraphInstantiate(&graph->handle, written, 0);
#endif
  (void)KVCAL_VENDOR(GraphDestroy)(written);
  check(status, "making a graph of what was recorded");
  return graph;
}

Event::Event(bool timed) {
  const unsigned flags = timed ? 0u : KVCAL_VENDOR(EventDisableTiming);
  check(KVCAL_VENDOR(EventCreateWithFlags)(&handle, flags), "making an event");
}
Event::~Event() {
  (void)KVCAL_VENDOR(EventDestroy)(handle);
}
void Event::record(Stream& stream) {
  check(KVCAL_VENDOR(EventRecord)(handle, stream.handle), "recording an event");
}
void Event::synchronize() const {
  check(KVCAL_VENDOR(EventSynchronize)(handle), "running on the device");
}
double Event::since(const Event& start) const {
  float milliseconds = 0.0f;
  check(KVCAL_VENDOR(EventElapsedTime)(&milliseconds, start.handle, handle), "reading a clock");
  return milliseconds;
}

Graph::~Graph() {
  if (handle) (void)KVCAL_VENDOR(GraphExecDestroy)(handle);
}
void Graph::play(Stream& stream) {
  check(KVCAL_VENDOR(GraphLaunch)(handle, stream.handle), "playing a recording");
}

#endif

}  // namespace kvcal::gpu
