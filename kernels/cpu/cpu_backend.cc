#include "kernels/cpu/cpu_backend.h"

#include <unistd.h>

#include <algorithm>

#include <cstring>

#include "kernels/cpu/cpu_class.h"
#include "kernels/cpu/targets.h"

#include <hwy/highway.h>

namespace kvcal::cpu {
namespace {

/// Rows that occupy one thread in every operation of a small model.
constexpr int64_t kTokensOfThread = 512;
/// Rows that amortize one read of a large layer's weights.
constexpr int64_t kTokensOfWeights = 2048;

}  // namespace

CacheSizes cache_sizes() {
  CacheSizes sizes;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  if (const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) sizes.level2 = bytes;
  if (const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) sizes.level3 = bytes;
#endif
  return sizes;
}

int64_t batch_tokens_near(const CacheSizes& caches, int threads, int64_t bytes_per_token) {
  const int64_t most = kTokensOfThread * threads, least = std::min(most, kTokensOfWeights);
  const int64_t near =
      (caches.level2 * threads + caches.level3 / 2) / std::max<int64_t>(1, bytes_per_token);
  return std::clamp(near, least, most);
}

CpuBackend::CpuBackend(const BackendOptions& options)
    : pool_(options.num_threads, use_one_thread_here),
      scratch_(static_cast<size_t>(pool_.num_threads())),
      decoded_(scratch_.size()),
      gemms_(pool_.num_threads()) {}

std::string CpuBackend::description() const {
  const int threads = pool_.num_threads();
  return "cpu (" + gemms_.implementation() + ", " + hwy::TargetName(target_here()) + ", " +
         std::to_string(threads) + (threads == 1 ? " thread)" : " threads)");
}

bool CpuBackend::supports(ComputeType type) const {
  return gemms_.supports(type);
}

ComputeType CpuBackend::preferred_compute_type() const {
  return gemms_.has_fast_bfloat16() ? ComputeType::kBFloat16 : ComputeType::kFloat32;
}

void CpuBackend::fill_zero(std::byte* data, size_t bytes) {
  for_row_blocks(static_cast<int64_t>(bytes), 1, [&](int64_t begin, int64_t end) {
    std::memset(data + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace kvcal::cpu

namespace kvcal {

std::vector<std::string> cpu_target_names() {
  std::vector<std::string> names;
  // A lower bit is a better instruction set.
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1)
    names.push_back(hwy::TargetName(left & -left));
  return names;
}

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}
}  // namespace kvcal
