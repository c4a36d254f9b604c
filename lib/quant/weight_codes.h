#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "quant/scale.h"
#include "quant/weight_scales.h"

namespace kvcal {

/// Makes the E4M3FN codes of a weight with known scales. Borrows the weight's bytes and copies the
/// scales. Source: compressed-tensors `_quantize`, on the CPU.
class WeightCoder {
 public:
  /// weight: as weight_scales checked it, so finite. scales: one positive scale a block of the
  /// grid, row-major. Throws Error for a scale that is not finite and positive.
  WeightCoder(TensorView weight, const ScaleGrid& grid, std::span<const Scale> scales,
              ScaleArithmetic arithmetic);

  /// Codes of elements [first, first + codes.size()) of the matrix, row-major: the code nearest to
  /// weight / scale, ties to even, saturating. A quotient of zero, also -0, gives 00. Thread-safe.
  void encode(uint64_t first, std::span<uint8_t> codes) const;

 private:
  TensorView weight_;
  ScaleGrid grid_;
  std::vector<Scale> scales_;
  bool rounds_quotient_ = false;
};

}  // namespace kvcal
