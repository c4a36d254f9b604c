#include "quant/weight_codes.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "quant/weight_loops.h"

namespace kvcal {

WeightCoder::WeightCoder(TensorView weight, const ScaleGrid& grid, std::span<const Scale> scales,
                         ScaleArithmetic arithmetic)
    : weight_(std::move(weight)),
      grid_(grid),
      scales_(scales.begin(), scales.end()),
      rounds_quotient_(arithmetic == ScaleArithmetic::kModelDtype) {
  KVCAL_CHECK(is_float(weight_.dtype));
  KVCAL_CHECK(weight_.shape == Shape({grid_.rows, grid_.columns}));
  KVCAL_CHECK(weight_.bytes.size() == byte_count(weight_.shape, weight_.dtype));
  KVCAL_CHECK(static_cast<int64_t>(scales_.size()) == grid_.num_scales());
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
    const std::byte* const elements =
        weight_.bytes.data() + at * weight_loops::bytes_of_element(weight_.dtype);
    weight_loops::best().encode({elements, weight_.dtype, count},
                                {scales_[static_cast<size_t>(scale)].value, rounds_quotient_},
                                codes.data() + done);
    done += count;
  }
}

}  // namespace kvcal
