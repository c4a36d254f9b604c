#include "run/devices.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <thread>

#include <malloc.h>

#include "core/interrupt.h"
#include "core/process.h"
#include "core/registry.h"
#include "core/stopwatch.h"
#include "core/text.h"
#include "core/usage_error.h"
#include "kernels/backends.h"

namespace kvcal {
namespace {

/// Parsed --device. indices: empty where none are given.
struct DeviceChoice {
  std::string name;
  std::vector<int> indices = {};
};

DeviceChoice parse_device(const std::string& text) {
  const size_t colon = text.find(':');
  DeviceChoice choice{.name = text.substr(0, colon)};
  if (colon == std::string::npos) return choice;
  const char* at = text.data() + colon;
  const char* const end = text.data() + text.size();
  while (at != end) {  // at a colon or a comma
    int index = 0;
    const auto [rest, error] = std::from_chars(at + 1, end, index);
    if (error != std::errc() || index < 0 || (rest != end && *rest != ','))
      fail_usage("'", text, "' is no list of devices, expected one like cuda:0,1");
    if (std::ranges::find(choice.indices, index) != choice.indices.end())
      fail_usage("'", text, "' names device ", index, " twice");
    choice.indices.push_back(index);
    at = rest;
  }
  return choice;
}

/// gpu: the build's, or "".
bool is_gpu(const std::string& name, std::string_view gpu) {
  return !gpu.empty() && normalised_name(name) == normalised_name(gpu);
}

/// Throws Error for a GPU that this build does not support.
void check_is_built(const std::string& name) {
  const std::string known = normalised_name(name);
  if (kBackends.find(name) || (known != "cuda" && known != "hip")) return;
  fail("this kvcal was built without ", known == "cuda" ? "CUDA" : "HIP", "; the preset '", known,
       "' builds it (cmake --preset ", known, "); here are ", join(kBackends.names(), ", "));
}

/// On a host: DeviceRate::pass_seconds of one thread, as measured on two of a Sapphire Rapids.
constexpr double kPassSeconds = 16e-9;
/// On a GPU: the rate of a whole forward pass beside that of its products alone.
constexpr double kPartOfProducts = 0.5;
/// On one thread: softmax of two models in double precision, and their KL.
constexpr double kSecondsPerLogit = 12e-9;

/// A program that shares a processor waits for a time slice, some milliseconds long. So a spell is
/// shorter than a slice, that at least one has none of the others' time, and all of them together
/// are long enough that each program has its turn. A GPU answers late, and has no slices.
struct Spells {
  double each, all;  ///< seconds
  int fewest;
};
constexpr Spells kOfHost{.each = 0.001, .all = 0.6, .fewest = 5};
constexpr Spells kOfGpu{.each = 0.02, .all = 0.1, .fewest = 5};
constexpr double kQuiet = 0.8;  ///< share from which the machine counts as ours alone

/// Products of matrices of this type, by which the device's speed is told.
class Products {
 public:
  Products(Backend& backend, ComputeType type)
      : backend_(backend), rows_(backend.is_host() ? 64 : 256) {
    std::vector<float> values(static_cast<size_t>(kSize * kSize), 0.5f);
    const std::vector<TensorView> parts{
        {"w", DType::kF32, Shape{kSize, kSize}, std::as_bytes(std::span(values))}};
    weight_ = backend.pack(parts, type);
    x_ = backend.allocate(count() * bytes_of(type));
    backend.fill_zero(x_.data(), count() * bytes_of(type));
    out_ = backend.allocate(count() * sizeof(float));
    host_.resize(count());
    seconds_of(1);  // the first one prepares
  }

  double flop() const { return 2.0 * static_cast<double>(rows_ * kSize * kSize); }

  double seconds_of(int times) {
    const Stopwatch watch;
    for (int i = 0; i < times; ++i)
      backend_.matmul({.x = x_.data(), .weight = *weight_, .rows = rows_, .out = out_.as<float>()});
    if (!backend_.is_host())  // waits for the device
      backend_.copy_out(out_.data(), std::as_writable_bytes(std::span(host_)));
    return watch.seconds();
  }

 private:
  static constexpr int64_t kSize = 1024;
  size_t count() const { return static_cast<size_t>(rows_ * kSize); }

  Backend& backend_;
  int64_t rows_;
  std::unique_ptr<PackedMatrix> weight_;
  Buffer x_, out_;
  std::vector<float> host_;
};

constexpr uint64_t kMiB = uint64_t{1} << 20;
/// Memory of a small run, rounded up so that a limit which suffices today suffices tomorrow.
constexpr uint64_t kLeastProcess = 128 * kMiB;
/// Code that oneDNN generates, fragmentation, results of the layers.
constexpr uint64_t kStillToCome = 48 * kMiB;

/// Working memory of a thread: rows of the widest Linear's input, and a panel of its weights.
uint64_t scratch_bytes(const ModelConfig& config) {
  const int64_t widest = std::max(
      {config.hidden_size, config.intermediate_size,
       config.largest([](const LayerConfig& layer) { return layer.attention.query_width(); })});
  return 4 * kMiB + uint64_t{512} * static_cast<uint64_t>(widest);
}

}  // namespace

void tell_warnings(std::span<Backend* const> backends, Diagnostics& diagnostics) {
  std::set<std::string> told;
  for (Backend* backend : backends)
    for (const std::string& warning : backend->take_warnings())
      if (told.insert(warning).second) diagnostics.warn(warning);
}

void tell_warnings(Backend& backend, Diagnostics& diagnostics) {
  Backend* const one = &backend;
  tell_warnings(std::span(&one, 1), diagnostics);
}

std::optional<int> gpu_to_start(const DeviceOptions& options, std::string_view gpu) {
  return in_context("--device", [&]() -> std::optional<int> {
    const DeviceChoice choice = parse_device(options.device);
    const bool may_take_gpu = choice.name == "auto" ? !gpu.empty() : is_gpu(choice.name, gpu);
    if (may_take_gpu) return choice.indices.empty() ? options.default_index : choice.indices[0];
    if (choice.name == "auto") return std::nullopt;
    check_is_built(choice.name);
    kBackends.at(choice.name);
    return std::nullopt;
  });
}

GpuStart::GpuStart(const DeviceOptions& options) {
  const std::string_view gpu = gpu_device_name();
  const std::optional<int> index = gpu_to_start(options, gpu);
  if (!index) return;
  // An error stays in the future, where nobody reads it.
  started_ =
      std::async(std::launch::async, [gpu, index] { kBackends.at(gpu)({.device_index = *index}); });
}

AutomaticDevice automatic_device(std::string_view gpu, const std::string& problem) {
  if (gpu.empty()) return {.name = "cpu"};
  if (problem.empty()) return {.name = std::string(gpu)};
  return {.name = "cpu", .note = "--device auto takes the CPU: " + problem};
}

std::vector<std::unique_ptr<Backend>> open_backends(const DeviceOptions& options,
                                                    Diagnostics& diagnostics) {
  return in_context("--device", [&] {
    DeviceChoice choice = parse_device(options.device);
    if (choice.name == "auto") {
      const AutomaticDevice chosen =
          automatic_device(gpu_device_name(), gpu_problem(options.default_index));
      if (!chosen.note.empty()) diagnostics.note(chosen.note);
      choice.name = chosen.name;
    }
    check_is_built(choice.name);
    const MakeBackend make = kBackends.at(choice.name);
    const bool takes_gpu = is_gpu(choice.name, gpu_device_name());
    if (!takes_gpu && !choice.indices.empty())
      fail_usage("'", options.device, "': ", choice.name, " is one device, leave the numbers out");
    if (choice.indices.empty()) choice.indices.push_back(takes_gpu ? options.default_index : 0);
    std::vector<std::unique_ptr<Backend>> backends;
    for (const int index : choice.indices)
      backends.push_back(make({.num_threads = options.threads,
                               .device_index = index,
                               .times_products = options.times_products,
                               .times_parts = options.times_parts}));
    tell_warnings(borrowed(backends), diagnostics);
    return backends;
  });
}

std::unique_ptr<Backend> open_backend(const DeviceOptions& options, Diagnostics& diagnostics) {
  const size_t count =
      in_context("--device", [&] { return parse_device(options.device).indices.size(); });
  if (count > 1)
    fail_usage("--device: '", options.device, "' names ", counted(count, "device"),
               ", this command runs on one");
  return std::move(open_backends(options, diagnostics).front());
}

std::vector<Backend*> borrowed(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<Backend*> all;
  for (const auto& backend : backends) all.push_back(backend.get());
  return all;
}

std::string settle_inputs(const DeviceOptions& options, CheckpointQuantization& quantization) {
  static const Registry<bool> kWords{"inputs", {{"as-served", true}, {"16bit", false}}};
  const bool as_served = in_context("--inputs", [&] { return kWords.at(options.inputs); });
  if (!quantization.quantizes_inputs()) return "";
  if (!as_served) quantization.leave_inputs();
  return options.inputs;
}

ComputeType compute_type_of(const DeviceOptions& options, const Backend& backend,
                            const ModelConfig& config) {
  static const Registry<ComputeType> kTypes{"compute dtype",
                                            {{"float32", ComputeType::kFloat32},
                                             {"bfloat16", ComputeType::kBFloat16},
                                             {"float16", ComputeType::kFloat16}}};
  if (options.compute_dtype == "auto") {
    // Weights stay in their dtype on a GPU, so a float16 checkpoint keeps its bits.
    const bool keeps_float16 =
        config.dtype == "float16" && !backend.is_host() && backend.supports(ComputeType::kFloat16);
    return keeps_float16 ? ComputeType::kFloat16 : backend.preferred_compute_type();
  }
  const ComputeType type =
      in_context("--compute-dtype", [&] { return kTypes.at(options.compute_dtype); });
  if (!backend.supports(type))
    fail("--compute-dtype ", name_of(type), " cannot be used on ", backend.description(), "; use ",
         backend.supports(ComputeType::kBFloat16) ? "bfloat16 or float32" : "float32");
  return type;
}

std::string description_of(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<std::string> all;
  for (const auto& backend : backends) {
    const std::string used = backend->kernels_used();
    all.push_back(backend->description() + (used.empty() ? "" : ", " + used));
  }
  if (all.size() > 1 && std::ranges::count(all, all[0]) == std::ssize(all))
    return std::to_string(all.size()) + " x " + all[0];
  return join(all, ", ");
}

int num_threads(const DeviceOptions& options) {
  return options.threads > 0 ? options.threads
                             : static_cast<int>(std::max<size_t>(1, allowed_cpus().size()));
}

DeviceRate measure_rate(Backend& backend, ComputeType type, int threads) {
  const Spells& spells = backend.is_host() ? kOfHost : kOfGpu;
  Products products(backend, type);
  int times = 1;
  for (double passed = products.seconds_of(times); passed < spells.each / 2;
       passed = products.seconds_of(times))
    times *= 2;
  double all = 0.0, least = std::numeric_limits<double>::infinity();
  int count = 0;
  for (; count < spells.fewest || all < spells.all; ++count) {
    throw_if_interrupted();
    const double passed = products.seconds_of(times);
    all += passed;
    least = std::min(least, passed);
  }
  const double share = std::min(1.0, least * count / all);
  const double rate = products.flop() * times / least;
  return {.flop = backend.is_host() ? rate : kPartOfProducts * rate,
          .pass_seconds = backend.is_host() ? kPassSeconds / static_cast<double>(threads) : 0.0,
          .share = share >= kQuiet ? 1.0 : share,
          .logit_seconds = kSecondsPerLogit / static_cast<double>(threads)};
}

std::vector<ProductChoice> product_choices_of(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<ProductChoice> all;
  for (const auto& backend : backends)
    for (ProductChoice& choice : backend->product_choices())
      if (std::ranges::find(all, choice) == all.end()) all.push_back(std::move(choice));
  return all;
}

std::vector<PartTime> part_times_of(std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<PartTime> all;
  for (const auto& backend : backends)
    for (const PartTime& time : backend->part_times()) {
      const auto known = std::ranges::find(all, time.part, &PartTime::part);
      if (known == all.end())
        all.push_back(time);
      else
        known->seconds += time.seconds;
    }
  return all;
}

Json products_json(std::span<const ProductChoice> choices) {
  if (choices.empty()) return {};
  Json all = Json::array();
  for (const ProductChoice& choice : choices)
    all.push_back(
        {{"product", choice.product}, {"algorithm", choice.algorithm}, {"chosen", choice.reason}});
  return all;
}

std::string device_work_text(std::span<const ProductChoice> choices,
                             std::span<const PartTime> parts) {
  std::string text;
  if (!choices.empty()) {
    TextTable table({"product", "algorithm", "chosen"});
    for (const ProductChoice& choice : choices)
      table.add({choice.product, choice.algorithm, choice.reason});
    text += table.text();
  }
  double all = 0.0;
  for (const PartTime& time : parts) all += time.seconds;
  if (all > 0.0) {
    TextTable table({"device", "seconds", "share"});
    for (const PartTime& time : parts)
      table.add({time.part, fixed("%.3f", time.seconds), percent(time.seconds / all)});
    text += table.text();
  }
  return text;
}

void set_process_memory(LayerwiseOptions& options, const ModelConfig& config, int threads) {
#ifdef __GLIBC__
  ::malloc_trim(0);  // tokenizer and data set are read; what they took is free again
#endif
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const uint64_t now = resident_bytes();
  options.process_bytes = std::max(kLeastProcess, now + kStillToCome) +
                          static_cast<uint64_t>(threads) * scratch_bytes(config);
  if (const auto left = available_memory()) options.process_can_take = now + *left - *left / 16;
}

}  // namespace kvcal
