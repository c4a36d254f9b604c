#include "stored/row_decoders.h"

#include <algorithm>

#include "quant/fp8_values.h"
#include "stored/coded_matrix.h"
#include "stored/weight_rows.h"
#include "stored/weights.h"

namespace kvcal {

void FloatRows::decode(int64_t first, int64_t count, float* out) const {
  scales_at(matrix_, first * width(), {out, static_cast<size_t>(count * width())});
}

BlockScaledRows::BlockScaledRows(TensorView codes, const TensorView& scale, int64_t block_rows,
                                 int64_t block_columns)
    : codes_(std::move(codes)),
      scales_(as_float32(std::span(&scale, 1))),
      scale_columns_(scale.shape[1]),
      block_rows_(block_rows),
      block_columns_(block_columns) {}

void BlockScaledRows::decode(int64_t first, int64_t count, float* out) const {
  for (int64_t row = first; row < first + count; ++row, out += width()) {
    check_codes(rows_of(codes_, row, 1));
    decode_unchecked(row, out);
  }
}

void BlockScaledRows::decode_unchecked(int64_t row, float* out) const {
  const std::byte* const codes = codes_.bytes.data() + row * width();
  const float* const scales = scales_.data() + row / block_rows_ * scale_columns_;
  for (int64_t first = 0; first < width(); first += block_columns_) {
    const float scale = scales[first / block_columns_];
    const int64_t end = std::min(first + block_columns_, width());
    for (int64_t i = first; i < end; ++i)
      out[i] = fp8::kE4m3Values[static_cast<uint8_t>(codes[i])] * scale;
  }
}

void DeinterleavedRows::decode(int64_t first, int64_t count, float* out) const {
  const int64_t even = (count_ + 1) / 2;
  for (int64_t row = first; row < first + count; ++row, out += width())
    rows_.decode(row < even ? 2 * row : 2 * (row - even) + 1, 1, out);
}

}  // namespace kvcal
