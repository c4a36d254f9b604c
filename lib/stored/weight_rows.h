#pragma once

#include <span>

#include "stored/weights.h"

namespace kvcal {

/// Rows [begin, begin + count) of a matrix [rows, width] or of a bias [rows].
TensorView rows_of(const TensorView& tensor, int64_t begin, int64_t count);

/// Throws Error naming the tensor where one of its F8_E4M3 codes is NaN.
void check_codes(const TensorView& codes);

/// Dequantizes F8_E4M3 [rows, width] with one scale for each block of block_rows x block_columns,
/// to F32. scale is F32, F16, BF16 or F8_E8M0 [ceil(rows / block_rows), ceil(width /
/// block_columns)]. Throws Error where a code is NaN.
WeightRows dequantized(const TensorView& codes, const TensorView& scale, int64_t block_rows,
                       int64_t block_columns);

/// Dequantizes some rows, in the given order; each in [0, rows of codes). Codes are not checked.
WeightRows dequantized_rows(const TensorView& codes, const TensorView& scale, int64_t block_rows,
                            int64_t block_columns, std::span<const int32_t> rows);

/// Transposes F32, F16 or BF16 [in, out] to [out, in].
WeightRows transposed(const TensorView& tensor);

/// Reorders rows: 0, 2, 4, .., then 1, 3, 5, ..
WeightRows deinterleaved(const TensorView& tensor);

}  // namespace kvcal
