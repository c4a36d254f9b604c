#include "kernels/fp8_checks.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/checked.h"
#include "core/error.h"

namespace kvcal {

Fp8PackShape checked_fp8_pack(std::span<const TensorView> parts, std::span<const float> scales) {
  for (const TensorView& part : parts)
    if (part.dtype != DType::kF8E4M3)
      fail("tensor '", part.name, "' is ", part.dtype, ", expected F8_E4M3");
  Fp8PackShape packed{concatenated_shape(parts), {}};
  const size_t rows = static_cast<size_t>(packed.shape.out_features);
  if (scales.size() != parts.size() && scales.size() != rows)
    fail("tensor '", parts[0].name, "' has ", scales.size(), " scales, expected ", parts.size(),
         " (one a tensor) or ", rows, " (one a row)");
  for (const float scale : scales)
    if (!std::isfinite(scale) || scale < 0.0f)
      fail("tensor '", parts[0].name, "' has a scale of ", scale,
           ", expected a finite one that is not negative");
  if (!scales.empty() && std::ranges::adjacent_find(scales, std::not_equal_to<>()) == scales.end())
    packed.scales = {scales[0]};
  else if (scales.size() == rows)
    packed.scales.assign(scales.begin(), scales.end());
  else
    for (size_t i = 0; i < parts.size(); ++i)
      packed.scales.insert(packed.scales.end(), static_cast<size_t>(parts[i].shape[0]), scales[i]);
  return packed;
}

void check_quantize_rows(const QuantizeRowsArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  KVCAL_CHECK((args.scales != nullptr) != (args.row_scales != nullptr));
}

void check_matmul_fp8(const Fp8MatmulArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.x_scales != nullptr);
  KVCAL_CHECK(args.out_stride == 0 || args.out_stride >= args.weight.out_features);
}

int64_t out_stride_of(const Fp8MatmulArgs& args) {
  return args.out_stride == 0 ? args.weight.out_features : args.out_stride;
}

}  // namespace kvcal
