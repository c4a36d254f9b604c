#pragma once

#include <span>
#include <utility>
#include <vector>

#include "backend/pack_shape.h"
#include "core/tensor.h"
#include "stored/weights.h"

namespace kvcal {

/// Rows of an F32, F16 or BF16 matrix, beside others that are decoded. Borrows its bytes.
class FloatRows : public RowDecoder {
 public:
  explicit FloatRows(TensorView matrix) : matrix_(std::move(matrix)) {}
  int64_t width() const override { return matrix_.shape[1]; }
  void decode(int64_t first, int64_t count, float* out) const override;

 private:
  TensorView matrix_;
};

/// F8_E4M3 [rows, width] with one scale for each block of block_rows x block_columns. scale is F32,
/// F16, BF16 or F8_E8M0 [ceil(rows / block_rows), ceil(width / block_columns)]. Borrows the codes.
class BlockScaledRows : public RowDecoder {
 public:
  BlockScaledRows(TensorView codes, const TensorView& scale, int64_t block_rows,
                  int64_t block_columns);
  int64_t width() const override { return codes_.shape[1]; }
  /// Throws Error where a code is NaN.
  void decode(int64_t first, int64_t count, float* out) const override;
  /// As decode of one row, without the check of its codes.
  void decode_unchecked(int64_t row, float* out) const;

 private:
  TensorView codes_;
  std::vector<float> scales_;
  int64_t scale_columns_, block_rows_, block_columns_;
};

/// Rows 0, 2, 4, .., then 1, 3, 5, .. of another matrix, which it borrows.
class DeinterleavedRows : public RowDecoder {
 public:
  DeinterleavedRows(const RowDecoder& rows, int64_t count) : rows_(rows), count_(count) {}
  int64_t width() const override { return rows_.width(); }
  void decode(int64_t first, int64_t count, float* out) const override;

 private:
  const RowDecoder& rows_;
  int64_t count_;
};

/// Rows [begin, begin + count) of a matrix [rows, width] or of a bias [rows].
TensorView rows_of(const TensorView& tensor, int64_t begin, int64_t count);

/// Throws Error naming the tensor where one of its F8_E4M3 codes is NaN.
void check_codes(const TensorView& codes);

/// Dequantizes some rows of F8_E4M3 [rows, width], as BlockScaledRows does, in the given order;
/// each in [0, rows of codes). Codes are not checked.
WeightRows dequantized_rows(const TensorView& codes, const TensorView& scale, int64_t block_rows,
                            int64_t block_columns, std::span<const int32_t> rows);

/// Transposes F32, F16 or BF16 [in, out] to [out, in].
WeightRows transposed(const TensorView& tensor);

/// Reorders rows: 0, 2, 4, .., then 1, 3, 5, ..
WeightRows deinterleaved(const TensorView& tensor);

}  // namespace kvcal
