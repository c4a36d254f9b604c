// Operations that have no kernel yet.
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

// scan
void GpuBackend::causal_conv(const CausalConvArgs&) {
  fail("causal_conv is not written");
}
void GpuBackend::ssm_scan(const SsmScanArgs&) {
  fail("ssm_scan is not written");
}
void GpuBackend::delta_scan(const DeltaScanArgs&) {
  fail("delta_scan is not written");
}
// attention
void GpuBackend::attention(const AttentionArgs&) {
  fail("attention is not written");
}

}  // namespace kvcal::gpu
