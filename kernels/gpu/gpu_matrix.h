#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

/// A weight on the device: [out_features, in_features] row-major elements of type, or E4M3FN codes.
class GpuMatrix : public PackedMatrix {
 public:
  GpuMatrix(GpuBackend& backend) : backend_(backend) {}
  ~GpuMatrix() override {
    // Given back on the operations' stream, which may never have waited for the upload.
    try {
      backend_.stream().wait(ready);
    } catch (...) {  // the device failed
    }
  }
  ComputeType type = ComputeType::kFloat32;
  bool is_fp8 = false;
  Buffer values;
  Buffer scales;                   ///< of codes: one float32, or [out_features]
  bool scale_per_feature = false;  ///< which of them
  Event ready;
  uint64_t number = 0;  ///< in the order of packing, from 1

 private:
  GpuBackend& backend_;
};

/// Rows of a decoding step that multiply_own takes together, reading the weight once.
constexpr int kFewRows = 4;
inline bool has_few_rows(const MatmulProblem& problem) {
  return problem.is_decoding && problem.rows <= kFewRows;
}

/// The product by kernels of ours, whatever its elements, scales and shape.
void multiply_own(const MatmulProblem& problem, Stream& stream);

}  // namespace kvcal::gpu
