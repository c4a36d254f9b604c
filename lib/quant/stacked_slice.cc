#include "quant/stacked_slice.h"

#include <algorithm>
#include <cstring>

namespace kvcal {
namespace {

/// Transposes [inputs, all outputs] to [rows, inputs], in tiles that fit the cache.
void turn(const TensorView& expert, const StackedSlice& slice, size_t rows, std::byte* to) {
  constexpr size_t kTile = 32;
  const auto inputs = static_cast<size_t>(expert.shape[0]);
  const auto outputs = static_cast<size_t>(expert.shape[1]);
  const auto size = static_cast<size_t>(bits_of_dtype(expert.dtype) / 8);
  const RowChoice chosen = outputs_of(slice, expert.shape[1]);
  const std::byte* const from = expert.bytes.data();
  for (size_t row_tile = 0; row_tile < rows; row_tile += kTile)
    for (size_t input_tile = 0; input_tile < inputs; input_tile += kTile)
      for (size_t row = row_tile; row < std::min(row_tile + kTile, rows); ++row) {
        const auto output = static_cast<size_t>(chosen.at(static_cast<int64_t>(row)));
        for (size_t input = input_tile; input < std::min(input_tile + kTile, inputs); ++input)
          std::memcpy(to + (row * inputs + input) * size, from + (input * outputs + output) * size,
                      size);
      }
}

/// Copies rows of [all outputs, ..] to [rows, ..].
void gather(const TensorView& expert, const StackedSlice& slice, size_t rows, std::byte* to) {
  const RowChoice chosen = outputs_of(slice, expert.shape[0]);
  const size_t row_bytes = expert.bytes.size() / static_cast<size_t>(expert.shape[0]);
  for (size_t row = 0; row < rows; ++row)
    std::memcpy(
        to + row * row_bytes,
        expert.bytes.data() + static_cast<size_t>(chosen.at(static_cast<int64_t>(row))) * row_bytes,
        row_bytes);
}

/// The shape with a dimension that counts the experts.
Shape with_experts(Shape shape, int64_t experts) {
  if (experts == 0) return shape;
  if (shape.rank() == 0 || shape[0] % experts != 0)
    fail("a tensor ", shape, " cannot hold ", counted(experts, "expert"));
  shape.dims[0] /= experts;
  shape.dims.insert(shape.dims.begin(), experts);
  return shape;
}

}  // namespace

RowChoice outputs_of(const StackedSlice& slice, int64_t outputs) {
  const int64_t count = outputs / slice.parts;
  if (slice.is_interleaved) return {.first = slice.part, .step = slice.parts, .count = count};
  return {.first = slice.part * count, .step = 1, .count = count};
}

Shape shape_of(const StackedSlice& slice, const Shape& in_file) {
  const Shape stacked = with_experts(in_file, slice.experts);
  const bool has_rank = stacked.rank() == 3 || (stacked.rank() == 2 && !slice.is_transposed);
  Shape shape = stacked;
  if (has_rank) {
    shape.dims.erase(shape.dims.begin());
    if (slice.is_transposed) std::swap(shape.dims[0], shape.dims[1]);
  }
  if (!has_rank || slice.index >= stacked[0] || shape[0] % slice.parts != 0)
    fail(slice.tensor, " is ", stacked, ", expected ", slice.parts, " parts of more than ",
         counted(slice.index, "expert"));
  shape.dims[0] /= slice.parts;
  return shape;
}

std::span<const std::byte> bytes_of_part(const TensorView& tensor, size_t begin, size_t count) {
  if (tensor.is_hollow()) return {tensor.bytes.data(), count};
  return tensor.bytes.subspan(begin, count);
}

TensorView expert_of(const TensorView& stacked, int64_t index, int64_t experts) {
  TensorView expert = stacked;
  expert.shape = with_experts(stacked.shape, experts);
  const size_t bytes = stacked.bytes.size() / static_cast<size_t>(expert.shape[0]);
  expert.shape.dims.erase(expert.shape.dims.begin());
  expert.bytes = bytes_of_part(stacked, static_cast<size_t>(index) * bytes, bytes);
  return expert;
}

SliceValues values_of(const TensorView& stacked, const StackedSlice& slice) {
  const Shape shape = shape_of(slice, stacked.shape);
  const TensorView expert = expert_of(stacked, slice.index, slice.experts);
  const size_t bytes = expert.bytes.size() / static_cast<size_t>(slice.parts);
  SliceValues values{.view = expert, .owned = {}};
  values.view.shape = shape;
  if (slice.is_contiguous()) {
    values.view.bytes = bytes_of_part(expert, static_cast<size_t>(slice.part) * bytes, bytes);
    return values;
  }
  if (expert.is_hollow()) throw HollowTensor(stacked.name);
  values.owned.resize(bytes);
  const auto rows = static_cast<size_t>(shape[0]);
  (slice.is_transposed ? turn : gather)(expert, slice, rows, values.owned.data());
  values.view.bytes = values.owned;
  return values;
}

}  // namespace kvcal
