#include "kernels/gpu/gpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "kernels/gpu/chips.h"

namespace kvcal::gpu {
namespace {

constexpr size_t kSmallChunk = size_t{1} << 20;
/// Number of segment lists cached on the device: those of all batches of a pass.
constexpr size_t kSegmentLists = 1024;

/// Throws Error where there is no such device, or this program does not run on it.
int checked_device(int index) {
  const int count = device_count();
  if (index < 0 || index >= count)
    fail("device ", index, " does not exist: there ", count == 1 ? "is " : "are ", count, " ",
         kVendorName, count == 1 ? " device" : " devices", ", numbered from 0");
  const DeviceProperties found = properties(index);
  if (const std::string problem = chip_problem(found.architecture, compiled_chips());
      !problem.empty())
    fail("device ", index, " (", found.name, ") cannot be used: ", problem);
  return index;
}

/// The same, and makes it the current device.
int opened_device(int index) {
  use_device(checked_device(index));
  return index;
}

std::string fp8_words(const std::string& architecture) {
  const auto format = native_fp8_format(architecture);
  return format ? ", " + std::string(fp8::name_of(*format)) : ", no FP8 instructions";
}

constexpr const char* kAttentionVariable = "KVCAL_GPU_ATTENTION";

/// Whether the user asks for attention with warpgroups. Throws Error where it is none of the
/// values.
bool asks_for_warpgroups() {
  const char* value = std::getenv(kAttentionVariable);
  const std::string_view asked = value ? value : "";
  if (!asked.empty() && asked != "mma" && asked != "wgmma")
    fail(kAttentionVariable, " is '", asked, "', expected mma or wgmma");
  return asked == "wgmma";
}

class PlayableGraph : public Recording {
 public:
  PlayableGraph(std::unique_ptr<Graph> graph, Stream& stream, int device)
      : graph_(std::move(graph)), stream_(stream), device_(device) {}
  void play() override {
    use_device(device_);
    graph_->play(stream_);
  }

 private:
  std::unique_ptr<Graph> graph_;
  Stream& stream_;
  int device_;
};

bool same(const Segment& a, const Segment& b) {
  return a.q_begin == b.q_begin && a.q_count == b.q_count && a.kv_begin == b.kv_begin &&
         a.kv_count == b.kv_count;
}

}  // namespace

GpuBackend::GpuBackend(const BackendOptions& options)
    : device_(opened_device(options.device_index)),
      properties_(properties(device_)),
      small_(kSmallChunk, 8),
      pack_threads_(options.num_threads) {
  OpenedMatmul opened =
      open_vendor_matmul({.device = properties_.name + ", " + properties_.architecture,
                          .times_products = options.times_products});
  vendor_ = std::move(opened.matmul);
  vendor_name_ = vendor_ ? vendor_->name() : "own matmul";
  if (!vendor_) warnings_.push_back(std::move(opened.problem));
  if (options.times_parts) {
    part_clock_ = std::make_unique<PartClock>(compute_, memory_);
    watch_ = part_clock_.get();
  }
  if (!asks_for_warpgroups()) return;
  attends_with_warpgroups_ = has_warpgroup_matrix(properties_.architecture, compiled_chips());
  if (!attends_with_warpgroups_)
    warnings_.push_back(std::string(kAttentionVariable) +
                        "=wgmma has no effect: " + properties_.architecture +
                        " is not sm_90, or this kvcal is not built for 90a");
}

GpuBackend::~GpuBackend() {
  try {
    stream().synchronize();
    transfer_.synchronize();
    upload_.synchronize();
  } catch (...) {  // the device failed; what failed was told already
  }
  segments_.clear();
  lasting_scratch_.clear();
  for (std::byte* data : pinned_) release_pinned_host(data);
}

std::string GpuBackend::description() const {
  return std::string(kDeviceName) + ":" + std::to_string(device_) + " (" + properties_.name + ", " +
         properties_.architecture + fp8_words(properties_.architecture) + ", " + vendor_name_ + ")";
}

std::string GpuBackend::kernels_used() const {
  if (attended_.empty()) return "";
  const std::string cores = "on " + std::string(matrix_units(properties_.architecture));
  return "attention " + join(attended_, " and ", [&](AttentionUnits units) {
           return units == AttentionUnits::kFloat32  ? "in float32"
                  : units == AttentionUnits::kMatrix ? cores
                                                     : cores + " by wgmma";
         });
}

std::vector<ProductChoice> GpuBackend::product_choices() const {
  return vendor_ ? vendor_->choices() : std::vector<ProductChoice>{};
}

std::vector<PartTime> GpuBackend::part_times() {
  if (!part_clock_) return {};
  use_device(device_);
  return part_clock_->times();
}

void GpuBackend::note_attention(AttentionUnits units, const std::string& slow) {
  attended_.insert(units);
  if (!slow.empty() && told_.insert(slow).second) warnings_.push_back(slow);
}

Stream& GpuBackend::stream() {
  use_device(device_);
  return compute_;
}

Launch GpuBackend::on_pieces(int64_t pieces) {
  constexpr unsigned kThreads = 256;
  return {.stream = stream(),
          .blocks = std::min((pieces + kThreads - 1) / kThreads,
                             int64_t{32} * properties_.multiprocessors),
          .threads = kThreads};
}

void GpuBackend::check_not_recording(const char* what) const {
  if (memory_.is_closed()) fail(what, " while operations are recorded");
}

std::optional<uint64_t> GpuBackend::free_memory() const {
  use_device(device_);
  return const_cast<DeviceMemory&>(memory_).free_bytes();
}

Buffer GpuBackend::allocate(size_t bytes) {
  return {this, memory_.take(bytes, stream()), bytes};
}

void GpuBackend::free(std::byte* data, size_t) noexcept {
  try {
    use_device(device_);
    if (const auto found = std::ranges::find(pinned_, data); found != pinned_.end()) {
      transfer_.synchronize();
      pinned_.erase(found);
      return release_pinned_host(data);
    }
  } catch (...) {  // the device failed; the memory goes with the process
    return;
  }
  memory_.give_back(data, compute_);
}

void GpuBackend::copy_in(std::span<const std::byte> host, std::byte* data) {
  check_not_recording("host memory is copied");
  stream();
  const WatchedOperation watched(watch_, PartClock::kCopy);
  small_.copy(host, data, compute_);
}

void GpuBackend::copy_out(const std::byte* data, std::span<std::byte> host) {
  check_not_recording("memory is copied out");
  if (host.empty()) return;
  stream();
  {
    const WatchedOperation watched(watch_, PartClock::kCopy);
    compute_.copy(host.data(), data, host.size());
  }
  compute_.synchronize();
}

void GpuBackend::fill_zero(std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  stream();
  const WatchedOperation watched(watch_, "fill_zero");
  compute_.fill_zero(data, bytes);
}

Buffer GpuBackend::allocate_pinned(size_t bytes) {
  stream();
  auto* data = static_cast<std::byte*>(allocate_pinned_host(bytes));
  if (!data) fail("no pinned host memory for ", bytes, " bytes of hidden states");
  pinned_.push_back(data);
  return {this, data, bytes};
}

void GpuBackend::transfer(const std::byte* from, std::byte* to, size_t bytes) {
  Stream& compute = stream();
  Event now;
  now.record(compute);
  transfer_.wait(now);
  transfer_.copy(to, from, bytes);
}

void GpuBackend::fetch(const std::byte* pinned, std::span<std::byte> data) {
  transfer(pinned, data.data(), data.size());
  fetched_.record(transfer_);
}

void GpuBackend::write_back(std::span<const std::byte> data, std::byte* pinned) {
  transfer(data.data(), pinned, data.size());
}

void GpuBackend::await_fetches() {
  stream();
  const WatchedOperation watched(watch_, PartClock::kWait);
  compute_.wait(fetched_);
}

std::unique_ptr<Recording> GpuBackend::record(const std::function<void()>& body) {
  // A recording cannot wait for events outside it.
  stream().synchronize();
  upload_.synchronize();
  awaited_ = packed_.load();
  const DeviceMemory::Closed closed(memory_);
  return std::make_unique<PlayableGraph>(stream().record(body), compute_, device_);
}

double GpuBackend::milliseconds_of(const std::function<void()>& body) {
  Stream& compute = stream();
  Event begin(true), end(true);
  begin.record(compute);
  body();
  end.record(stream());
  end.synchronize();
  return end.since(begin);
}

void GpuBackend::copy(const std::byte* from, std::byte* to, size_t bytes) {
  stream().copy(to, from, bytes);
}

std::byte* GpuBackend::lasting_scratch(size_t bytes) {
  const size_t now = lasting_scratch_.empty() ? 0 : lasting_scratch_.back().size();
  if (bytes > now)
    lasting_scratch_.push_back(allocate(std::max({bytes, 2 * now, size_t{1} << 20})));
  return lasting_scratch_.back().data();
}

const Segment* GpuBackend::on_device(std::span<const Segment> segments) {
  const auto equal = [&](const DeviceSegments& known) {
    return std::ranges::equal(known.host, segments, same);
  };
  const auto found = std::find_if(segments_.rbegin(), segments_.rend(), equal);
  if (found != segments_.rend()) {
    std::rotate(found.base() - 1, found.base(), segments_.end());
    segments_.back().is_recorded |= memory_.is_closed();
    return segments_.back().device.as<Segment>();
  }
  const auto oldest = std::ranges::find(segments_, false, &DeviceSegments::is_recorded);
  if (segments_.size() >= kSegmentLists && oldest != segments_.end()) segments_.erase(oldest);
  DeviceSegments added{{segments.begin(), segments.end()}, allocate(segments.size_bytes())};
  copy_in(std::as_bytes(segments), added.device.data());
  segments_.push_back(std::move(added));
  return segments_.back().device.as<Segment>();
}

}  // namespace kvcal::gpu

namespace kvcal {

std::unique_ptr<Backend> make_gpu_backend(const BackendOptions& options) {
  return std::make_unique<gpu::GpuBackend>(options);
}

double gpu_milliseconds(Backend& backend, const std::function<void()>& body) {
  return dynamic_cast<gpu::GpuBackend&>(backend).milliseconds_of(body);
}

void gpu_copy(Backend& backend, const std::byte* from, std::byte* to, size_t bytes) {
  dynamic_cast<gpu::GpuBackend&>(backend).copy(from, to, bytes);
}

std::string gpu_device_problem(int device_index) {
  try {
    gpu::opened_device(device_index);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

int gpu_device_count() {
  try {
    return gpu::device_count();
  } catch (const Error&) {
    return 0;
  }
}

std::string gpu_device_bus_id(int device_index) {
  try {
    return gpu::pci_bus_id(gpu::checked_device(device_index));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace kvcal
