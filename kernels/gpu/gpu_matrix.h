#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"

namespace kvcal::gpu {

/// A weight on the device: [out_features, in_features] row-major elements of type, or E4M3FN codes.
class GpuMatrix : public PackedMatrix {
 public:
  GpuMatrix(GpuBackend& backend) : backend_(backend) {}
  ~GpuMatrix() override {
    // Released on the stream of operations, which may never have waited for the upload.
    try {
      backend_.stream().wait(ready);
    } catch (...) {  // the device failed
    }
  }
  GpuBackend& backend() const { return backend_; }

  ComputeType type = ComputeType::kFloat32;
  bool is_fp8 = false;
  Buffer values;
  Buffer scales;                   ///< of codes: one float32, or [out_features]
  bool scale_per_feature = false;  ///< which of the two
  Event ready;
  uint64_t number = 0;  ///< packing order, from 1

 private:
  GpuBackend& backend_;
};

/// Product of args, of matmul or matmul_fp8, without scales.
template <class Args>
MatmulProblem problem_of(const Args& args, const GpuMatrix& weight) {
  return {.type = weight.type,
          .is_fp8 = weight.is_fp8,
          .x = args.x,
          .weight = weight.values.data(),
          .bias = args.bias,
          .out = args.out,
          .accumulate = args.accumulate,
          .rows = args.rows,
          .in = weight.in_features,
          .out_features = weight.out_features,
          .out_stride = args.out_row_stride(),
          .is_decoding = args.is_decoding};
}

/// Rows of a decoding step that multiply_own processes together, with one read of the weight.
constexpr int kFewRows = 4;
inline bool has_few_rows(const MatmulProblem& problem) {
  return problem.is_decoding && problem.rows <= kFewRows;
}

/// Product by our own kernels, for any elements, scales and shape.
void multiply_own(const MatmulProblem& problem, Stream& stream);

}  // namespace kvcal::gpu
