#pragma once

#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/tensor.h"
#include "quant/quant_args.h"
#include "quant/scale.h"

namespace kvcal {

/// kFloat32: scales and quotients are float32. kModelDtype: both are rounded to the weight's own
/// dtype, as llm-compressor has them. The same for F32 weights.
enum class ScaleArithmetic : uint8_t { kFloat32, kModelDtype };

/// value rounded to dtype (F16, BF16 or F32) and back.
float rounded_to(DType dtype, float value);

/// Which elements of a [rows, columns] weight share a scale: blocks of block_rows x block_columns,
/// those at the lower and right edge cut off.
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
  /// As it is stored: [1] for kTensor, [rows, 1] for kChannel, [grid_rows, grid_columns] for
  /// kBlock.
  Shape scale_shape(Strategy strategy) const;
};

/// Throws Error for another strategy than tensor, channel and block, for a weight that is no matrix
/// or has no elements, and for a block_structure that is missing or not two positive numbers.
ScaleGrid scale_grid(const QuantArgs& args, const Shape& weight);

/// One value for each block of the grid, row-major.
struct WeightScales {
  ScaleGrid grid;
  std::vector<Amax> amax;  ///< of the weights, whatever range the observer chose
  std::vector<Scale> scales;
};

/// The E4M3FN scales of an F16, BF16 or F32 weight [rows, columns] by the observer that args names:
/// memoryless_minmax (also where none is named, and for minmax and static_minmax: a weight is seen
/// once) or mse (also memoryless_mse). The same floats for any pool; nullptr: the caller's thread.
/// Throws Error naming tensor and element for NaN or infinity, and for another observer.
/// In kFloat32 with memoryless_minmax the scale of a block of a 16-bit weight is amax / 448, or
/// that rounded to the weight's dtype where this reconstructs the block as well or better
/// (docs/numerics.md). Source: compressed-tensors `calculate_qparams`, llm-compressor
/// `flatten_for_calibration`.
WeightScales weight_scales(const TensorView& weight, const QuantArgs& args,
                           ScaleArithmetic arithmetic, ThreadPool* pool);

/// The scale of a block of zeros: float32's epsilon, or that of dtype (F16 2^-10, BF16 2^-7).
float zero_scale(DType dtype, ScaleArithmetic arithmetic);

}  // namespace kvcal
