#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "core/tensor.h"
#include "quant/quant_scheme.h"
#include "quant/scale.h"

namespace kvcal {

/// kFloat32: scales and quotients are float32. kModelDtype: both are rounded to the weight's dtype,
/// as in llm-compressor. Equal for F32 weights.
enum class ScaleArithmetic : uint8_t { kFloat32, kModelDtype };

/// value rounded to dtype (F16, BF16 or F32) and back.
float rounded_to(DType dtype, float value);
/// Bits of value in dtype, in the low bytes.
uint32_t bits_in(DType dtype, float value);
/// Value of element index of an array of F16, BF16 or F32 that begins at bytes, at any address.
float element_of(const std::byte* bytes, DType dtype, uint64_t index);

/// Blocks of a [rows, columns] weight that share a scale: block_rows x block_columns, cut off at
/// the lower and right edge.
struct ScaleGrid {
  int64_t rows = 0, columns = 0;
  int64_t block_rows = 0, block_columns = 0;

  int64_t grid_rows() const { return (rows + block_rows - 1) / block_rows; }
  int64_t grid_columns() const { return (columns + block_columns - 1) / block_columns; }
  int64_t num_scales() const { return grid_rows() * grid_columns(); }
  bool has_one_scale() const { return num_scales() == 1; }
  int64_t scale_of(int64_t row, int64_t column) const {
    return row / block_rows * grid_columns() + column / block_columns;
  }
  /// Stored shape: [1] for kTensor, else [grid_rows, grid_columns].
  Shape scale_shape(Strategy strategy) const;
};

/// Throws Error for the strategies token and attn_head, for a weight that is no matrix or has no
/// elements, for a block_structure that is missing or not two positive numbers, and for inputs that
/// are no whole groups.
ScaleGrid scale_grid(const QuantArgs& args, const Shape& weight);

/// One value for each block of the grid, row-major.
struct WeightScales {
  ScaleGrid grid;
  std::vector<Amax> amax;  ///< of the weights, for any range that the observer chose
  std::vector<Scale> scales;
};

/// Largest magnitude of each block of an F16, BF16 or F32 weight [rows, columns], row-major. Throws
/// Error naming tensor and element for NaN or infinity.
std::vector<Amax> weight_amax(const TensorView& weight, const QuantArgs& args, ThreadPool* pool);

/// E4M3FN scales of an F16, BF16 or F32 weight [rows, columns] by the observer in args:
/// memoryless_minmax (the default, also for minmax and static_minmax: a weight is seen once) or mse
/// (also memoryless_mse). The result does not depend on the pool; nullptr: the caller's thread.
/// Throws Error naming tensor and element for NaN or infinity, and for another observer.
/// In kFloat32 with memoryless_minmax, the scale of a block of a 16-bit weight is amax / 448, or
/// that value rounded to the weight's dtype where this reconstructs the block at least as well
/// (docs/numerics.md). Source: compressed-tensors `calculate_qparams`, llm-compressor
/// `flatten_for_calibration`.
WeightScales weight_scales(const TensorView& weight, const QuantArgs& args,
                           ScaleArithmetic arithmetic, ThreadPool* pool);

/// Scale of a block of zeros: float32's epsilon, or that of dtype (F16 2^-10, BF16 2^-7).
float zero_scale(DType dtype, ScaleArithmetic arithmetic);

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
