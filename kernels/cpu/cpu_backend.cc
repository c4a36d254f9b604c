#include "kernels/cpu/cpu_backend.h"

#include <cstring>

#include "kernels/cpu/targets.h"

#include <hwy/highway.h>

namespace kvcal::cpu {

CpuBackend::CpuBackend(const BackendOptions& options)
    : pool_(options.num_threads, use_one_thread_here),
      scratch_(static_cast<size_t>(pool_.num_threads())),
      decoded_(scratch_.size()),
      gemms_(pool_.num_threads()) {}

std::string CpuBackend::description() const {
  int64_t best = hwy::SupportedTargets() & HWY_TARGETS;
  best &= -best;  // the lowest bit is the best target
  const int threads = pool_.num_threads();
  return "cpu (" + gemms_.implementation() + ", " + hwy::TargetName(best) + ", " +
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
std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}
}  // namespace kvcal
