// Stands in for the CUDA runtime: streams, events, graphs, copies and errors.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device_memory.h"
#include "report.h"
#include "runtime.h"

namespace kvcal::ptx {
namespace {

using Operations = std::vector<std::function<void()>>;

struct StreamState {
  bool is_capturing = false;
  Operations captured;
};
struct EventState {
  bool is_recorded = false, is_captured = false;
};

StreamState& state_of(cudaStream_t stream) {
  if (!stream) stop("work is given to the default stream");
  return *reinterpret_cast<StreamState*>(stream);
}
EventState& state_of(cudaEvent_t event) {
  return *reinterpret_cast<EventState*>(event);
}

thread_local cudaError_t last_error = cudaSuccess;

/// Operations of all threads run one after the other.
std::recursive_mutex& device_mutex() {
  static std::recursive_mutex* const mutex = new std::recursive_mutex;
  return *mutex;
}

/// Ends the program where memory begins in an allocation and ends behind it; whether it is in one.
bool check_range(const void* data, size_t bytes, const char* what) {
  const auto address = reinterpret_cast<uint64_t>(data);
  if (find_allocation(address, bytes)) return true;
  if (find_allocation(address, 1))
    stop(std::string(what) + " of " + std::to_string(bytes) + " bytes leaves its allocation");
  return false;
}

}  // namespace

cudaError_t failed(cudaError_t error) {
  last_error = error;
  return error;
}

void issue(cudaStream_t stream, std::function<void()> operation) {
  StreamState& state = state_of(stream);
  const std::lock_guard lock(device_mutex());
  if (state.is_capturing)
    state.captured.push_back(std::move(operation));
  else
    operation();
}

}  // namespace kvcal::ptx

using namespace kvcal::ptx;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = "error " + std::to_string(static_cast<int>(error));
  return text.c_str();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new StreamState);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &state_of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return state_of(stream).is_capturing ? failed(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const EventState& state = state_of(event);
  const bool leaves_capture =
      state_of(stream).is_capturing && state.is_recorded && !state.is_captured;
  return leaves_capture ? failed(cudaErrorStreamCaptureIsolation) : cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const bool to_known = check_range(to, bytes, "the target of a copy");
  const bool from_known = check_range(from, bytes, "the source of a copy");
  if (!to_known && !from_known) stop("a copy between two addresses of pageable host memory");
  issue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!check_range(data, bytes, "a fill")) stop("a fill of memory that is not allocated");
  issue(stream, [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  state_of(stream).is_capturing = true;
  state_of(stream).captured.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  StreamState& state = state_of(stream);
  state.is_capturing = false;
  *graph = reinterpret_cast<cudaGraph_t>(new Operations(std::exchange(state.captured, {})));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Operations(*reinterpret_cast<Operations*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const auto& operation : *reinterpret_cast<Operations*>(graph)) issue(stream, operation);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Operations*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<Operations*>(graph);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new EventState);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &state_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  state_of(event) = {true, state_of(stream).is_capturing};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return state_of(event).is_captured ? failed(cudaErrorCapturedEvent) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0.0f;  // a CPU's time tells nothing
  return cudaSuccess;
}

}  // extern "C"
