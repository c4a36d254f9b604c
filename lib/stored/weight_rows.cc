#include "stored/weight_rows.h"

#include <algorithm>
#include <cstring>

#include "quant/fp8.h"
#include "quant/stacked_slice.h"
#include "stored/coded_matrix.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

size_t row_bytes(const TensorView& tensor) {
  const auto rows = static_cast<size_t>(tensor.shape[0]);
  return rows == 0 ? 0 : tensor.bytes.size() / rows;
}

WeightRows owning(const TensorView& like, DType dtype, Shape shape, std::vector<std::byte> bytes) {
  WeightRows result;
  result.owned.push_back(std::move(bytes));
  TensorView view = like;
  view.dtype = dtype;
  view.shape = std::move(shape);
  view.bytes = result.owned.back();
  result.parts.push_back(view);
  return result;
}

}  // namespace

TensorView rows_of(const TensorView& tensor, int64_t begin, int64_t count) {
  KVCAL_CHECK(begin >= 0 && count >= 0 && begin + count <= tensor.shape[0]);
  const size_t bytes = row_bytes(tensor);
  TensorView view = tensor;
  view.shape.dims[0] = count;
  view.bytes =
      bytes_of_part(tensor, static_cast<size_t>(begin) * bytes, static_cast<size_t>(count) * bytes);
  return view;
}

void check_codes(const TensorView& codes) {
  const auto is_nan = [](std::byte code) { return (code & std::byte{0x7f}) == std::byte{0x7f}; };
  // A block at a time without a branch, so that the compiler vectorizes the loop.
  constexpr size_t kBlock = 4096;
  for (size_t at = 0; at < codes.bytes.size(); at += kBlock) {
    const auto block = codes.bytes.subspan(at, std::min(kBlock, codes.bytes.size() - at));
    uint8_t found = 0;
    for (const std::byte code : block) found |= is_nan(code) ? uint8_t{1} : uint8_t{0};
    if (found != 0) fail(codes.name, " holds NaN (codes 7f or ff), expected numbers");
  }
}

WeightRows dequantized_rows(const TensorView& codes, const TensorView& scale, int64_t block_rows,
                            int64_t block_columns, std::span<const int32_t> rows) {
  const BlockScaledRows decoder(codes, scale, block_rows, block_columns);
  const auto width = static_cast<size_t>(decoder.width());
  std::vector<std::byte> bytes(rows.size() * width * sizeof(float));
  auto* const values = reinterpret_cast<float*>(bytes.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    KVCAL_CHECK(rows[i] >= 0 && rows[i] < codes.shape[0]);
    decoder.decode_unchecked(rows[i], values + i * width);
  }
  return owning(codes, DType::kF32, Shape{static_cast<int64_t>(rows.size()), codes.shape[1]},
                std::move(bytes));
}

namespace {

/// Transposes [in, out] to [out, in], in tiles that fit the cache.
template <size_t kElement>
void transpose(const std::byte* from, size_t in, size_t out, std::byte* to) {
  constexpr size_t kTile = 32;
  for (size_t row_tile = 0; row_tile < in; row_tile += kTile)
    for (size_t column_tile = 0; column_tile < out; column_tile += kTile)
      for (size_t column = column_tile; column < std::min(column_tile + kTile, out); ++column)
        for (size_t row = row_tile; row < std::min(row_tile + kTile, in); ++row)
          std::memcpy(to + (column * in + row) * kElement, from + (row * out + column) * kElement,
                      kElement);
}

}  // namespace

WeightRows transposed(const TensorView& tensor) {
  const auto in = static_cast<size_t>(tensor.shape[0]), out = static_cast<size_t>(tensor.shape[1]);
  std::vector<std::byte> bytes(tensor.bytes.size());
  if (tensor.dtype == DType::kF32) {
    transpose<4>(tensor.bytes.data(), in, out, bytes.data());
  } else {
    transpose<2>(tensor.bytes.data(), in, out, bytes.data());
  }
  return owning(tensor, tensor.dtype, Shape{tensor.shape[1], tensor.shape[0]}, std::move(bytes));
}

WeightRows deinterleaved(const TensorView& tensor) {
  const size_t row = row_bytes(tensor), rows = static_cast<size_t>(tensor.shape[0]);
  std::vector<std::byte> bytes(tensor.bytes.size());
  for (size_t i = 0; i < rows; ++i) {
    const size_t target = i / 2 + (i % 2 == 1 ? (rows + 1) / 2 : 0);
    std::memcpy(bytes.data() + target * row, tensor.bytes.data() + i * row, row);
  }
  return owning(tensor, tensor.dtype, tensor.shape, std::move(bytes));
}

std::vector<float> as_float32(std::span<const TensorView> parts) {
  std::vector<float> values;
  for (const TensorView& part : parts) {
    const size_t first = values.size();
    values.resize(first + element_count(part.shape));
    scales_at(part, 0, std::span(values).subspan(first));
  }
  return values;
}

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
