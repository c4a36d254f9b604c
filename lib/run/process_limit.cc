#include "run/process_limit.h"

#include <malloc.h>

#include <algorithm>
#include <thread>

#include "core/process_memory.h"

namespace kvcal {
namespace {

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
