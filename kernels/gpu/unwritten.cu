// Operations that have no kernel yet.
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

// elementwise
void GpuBackend::embed(const EmbedArgs&) {
  fail("embed is not written");
}
void GpuBackend::activate(const ActivationArgs&) {
  fail("activate is not written");
}
void GpuBackend::multiply_gate(const MultiplyGateArgs&) {
  fail("multiply_gate is not written");
}
void GpuBackend::observe_amax(const ObserveAmaxArgs&) {
  fail("observe_amax is not written");
}
// rows
void GpuBackend::copy_heads(const CopyHeadsArgs&) {
  fail("copy_heads is not written");
}
void GpuBackend::gather_rows(const GatherRowsArgs&) {
  fail("gather_rows is not written");
}
void GpuBackend::scatter_add(const ScatterAddArgs&) {
  fail("scatter_add is not written");
}
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
