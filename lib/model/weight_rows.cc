#include "model/weight_rows.h"

#include <algorithm>
#include <cstring>

#include "quant/fp8.h"
#include "quant/half.h"

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
      tensor.bytes.subspan(static_cast<size_t>(begin) * bytes, static_cast<size_t>(count) * bytes);
  return view;
}

WeightRows dequantized(const TensorView& codes, const TensorView& scale, int64_t block_rows,
                       int64_t block_columns) {
  const auto rows = static_cast<size_t>(codes.shape[0]),
             width = static_cast<size_t>(codes.shape[1]);
  const auto columns_of_scale = static_cast<size_t>(scale.shape[1]);
  std::vector<std::byte> bytes(rows * width * sizeof(float));
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < width; ++column) {
      const size_t block = row / static_cast<size_t>(block_rows) * columns_of_scale +
                           column / static_cast<size_t>(block_columns);
      float factor = 0.0f;
      std::memcpy(&factor, scale.bytes.data() + block * sizeof(float), sizeof(float));
      const auto code = static_cast<uint8_t>(codes.bytes[row * width + column]);
      const float value = fp8::decode(code, fp8::Format::kE4m3Fn) * factor;
      std::memcpy(bytes.data() + (row * width + column) * sizeof(float), &value, sizeof(float));
    }
  return owning(codes, DType::kF32, codes.shape, std::move(bytes));
}

WeightRows transposed(const TensorView& tensor) {
  const auto in = static_cast<size_t>(tensor.shape[0]), out = static_cast<size_t>(tensor.shape[1]);
  const size_t element = tensor.bytes.size() / std::max<size_t>(1, in * out);
  std::vector<std::byte> bytes(tensor.bytes.size());
  for (size_t row = 0; row < in; ++row)
    for (size_t column = 0; column < out; ++column)
      std::memcpy(bytes.data() + (column * in + row) * element,
                  tensor.bytes.data() + (row * out + column) * element, element);
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
    const size_t first = values.size(), count = element_count(part.shape);
    values.resize(first + count);
    for (size_t i = 0; i < count; ++i) {
      if (part.dtype == DType::kF32) {
        std::memcpy(&values[first + i], part.bytes.data() + 4 * i, 4);
        continue;
      }
      uint16_t bits = 0;
      std::memcpy(&bits, part.bytes.data() + 2 * i, 2);
      values[first + i] = part.dtype == DType::kF16 ? to_float(F16{bits}) : to_float(BF16{bits});
    }
  }
  return values;
}

}  // namespace kvcal
