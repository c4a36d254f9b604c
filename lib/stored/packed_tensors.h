#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "quant/quant_args.h"
#include "quant/stacked_slice.h"

namespace kvcal {

class CodedMatrix;
class IntegerMatrix;

/// Source of a tensor whose first dimension counts rows. fill makes rows [begin, begin + count);
/// several threads call it at once.
TensorSource rows_source(std::string name, DType dtype, Shape shape,
                         std::function<void(int64_t begin, int64_t count, std::byte* out)> fill);

/// Source of the chosen rows of a tensor [rows, ..], which the view of a file holds contiguously.
TensorSource chosen_rows(std::string name, DType dtype, const TensorView& tensor,
                         const RowChoice& rows);

/// The tensor weight_shape of a packed weight: I64 [2].
TensorSource shape_source(std::string name, const std::array<int64_t, 2>& shape);

/// Args that describe integer codes. Symmetric where all zero points are in the middle; with an
/// order of activations where groups are not contiguous.
QuantArgs packed_args(const IntegerMatrix& matrix);

/// Tensors of compressed-tensors' pack-quantized format for the chosen rows: weight_packed I32,
/// weight_scale in the dtype of the source's scales, weight_shape, and where args need them
/// weight_zero_point and weight_g_idx. Source: compressed-tensors 0.20
/// `PackedQuantizationCompressor`, and 0.13 for g_idx. Borrows matrix.
std::vector<TensorSource> packed_tensors(const IntegerMatrix& matrix, const QuantArgs& args,
                                         const std::string& module, const RowChoice& rows);

}  // namespace kvcal
