#pragma once

#include <span>
#include <vector>

#include "kernels/host_backend.h"

namespace kvcal {

/// What pack_fp8 will concatenate, and its scales.
struct Fp8PackShape {
  PackShape shape;
  std::vector<float> scales;  ///< one where all rows have the same, else [out_features]
  bool scale_per_row() const { return scales.size() > 1; }
};

/// Checks the parts as checked_pack_shape does, but for F8_E4M3, and the scales: one a part or one
/// an output row, finite, not negative. Throws Error naming what is wrong.
Fp8PackShape checked_fp8_pack(std::span<const TensorView> parts, std::span<const float> scales);

/// Throws (our own mistake) where the arguments contradict each other.
void check_quantize_rows(const QuantizeRowsArgs& args);
void check_matmul_fp8(const Fp8MatmulArgs& args);
/// Between rows of out, in floats.
int64_t out_stride_of(const Fp8MatmulArgs& args);

}  // namespace kvcal
