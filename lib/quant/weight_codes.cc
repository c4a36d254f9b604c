#include "quant/weight_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "quant/fp8.h"
#include "quant/half.h"
#include "quant/weight_loops.h"

namespace kvcal {
namespace {

using weight_loops::bytes_of_element;

float element_at(const TensorView& weight, uint64_t index) {
  const std::byte* const bytes = weight.bytes.data() + index * bytes_of_element(weight.dtype);
  uint16_t half = 0;
  float value = 0;
  if (weight.dtype == DType::kF32) {
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  std::memcpy(&half, bytes, sizeof(half));
  return weight.dtype == DType::kF16 ? to_float(F16{half}) : to_float(BF16{half});
}

void check(const TensorView& weight, const ScaleGrid& grid, std::span<const Scale> scales) {
  KVCAL_CHECK(is_float(weight.dtype));
  KVCAL_CHECK(weight.shape == Shape({grid.rows, grid.columns}));
  KVCAL_CHECK(weight.bytes.size() == byte_count(weight.shape, weight.dtype));
  KVCAL_CHECK(static_cast<int64_t>(scales.size()) == grid.num_scales());
}

}  // namespace

WeightCoder::WeightCoder(TensorView weight, const ScaleGrid& grid, std::span<const Scale> scales,
                         ScaleArithmetic arithmetic)
    : weight_(std::move(weight)),
      grid_(grid),
      scales_(scales.begin(), scales.end()),
      rounds_quotient_(arithmetic == ScaleArithmetic::kModelDtype) {
  check(weight_, grid_, scales_);
  for (const Scale scale : scales_)
    if (!(scale.value > 0) || !std::isfinite(scale.value))
      fail(weight_.name, ": scale ", scale.value, ", expected a positive finite one");
}

void WeightCoder::encode(uint64_t first, std::span<uint8_t> codes) const {
  KVCAL_CHECK(first + codes.size() <= element_count(weight_.shape));
  const auto columns = static_cast<uint64_t>(grid_.columns);
  const auto block_columns = static_cast<uint64_t>(grid_.block_columns);
  for (uint64_t done = 0; done < codes.size();) {
    const uint64_t at = first + done, column = at % columns;
    // Ends at the end of the row's piece in one block, or of the whole range where one scale serves
    // all.
    const uint64_t piece = grid_.has_one_scale()
                               ? codes.size()
                               : std::min(columns - column, block_columns - column % block_columns);
    const uint64_t count = std::min<uint64_t>(piece, codes.size() - done);
    const int64_t scale =
        grid_.scale_of(static_cast<int64_t>(at / columns), static_cast<int64_t>(column));
    const std::byte* const elements = weight_.bytes.data() + at * bytes_of_element(weight_.dtype);
    weight_loops::best().encode({elements, weight_.dtype, count},
                                {scales_[static_cast<size_t>(scale)].value, rounds_quotient_},
                                codes.data() + done);
    done += count;
  }
}

double reconstruction_error(const TensorView& weight, std::span<const uint8_t> codes,
                            const ScaleGrid& grid, std::span<const Scale> scales) {
  check(weight, grid, scales);
  KVCAL_CHECK(codes.size() == element_count(weight.shape));
  double squares = 0, error_squares = 0;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns; ++column) {
      const auto index = static_cast<uint64_t>(row * grid.columns + column);
      const double value = element_at(weight, index);
      const double scale = scales[static_cast<size_t>(grid.scale_of(row, column))].value;
      const double error = scale * fp8::decode(codes[index], fp8::Format::kE4m3Fn) - value;
      squares += value * value;
      error_squares += error * error;
    }
  }
  if (error_squares == 0) return 0;
  return std::sqrt(error_squares / squares);
}

}  // namespace kvcal
