#include "backend/pack_shape.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "core/number.h"

namespace kvcal {
namespace {

void check_float(const TensorView& view) {
  if (!is_float(view.dtype))
    fail("tensor '", view.name, "' is ", view.dtype, ", expected F32, F16 or BF16");
}

/// A matrix whose bytes match its shape. Throws Error otherwise.
void check_matrix(const TensorView& view) {
  if (view.shape.rank() != 2)
    fail("tensor '", view.name, "' has shape ", view.shape, ", expected two dimensions");
  const uint64_t wanted = byte_count(view.shape, view.dtype);
  if (view.bytes.size() != wanted)
    fail("tensor '", view.name, "': shape ", view.shape, " of ", view.dtype, " needs ", wanted,
         " bytes, it has ", view.bytes.size());
}

/// Shape of the parts' concatenation, whatever their type.
PackShape concatenated_shape(std::span<const TensorView> parts) {
  KVCAL_CHECK(!parts.empty());
  for (const TensorView& part : parts) check_matrix(part);
  PackShape shape{.out_features = 0, .in_features = parts[0].shape[1]};
  for (const TensorView& part : parts) {
    if (part.shape[1] != shape.in_features)
      fail("tensor '", part.name, "' has shape ", part.shape, ", expected ", shape.in_features,
           " columns as in '", parts[0].name, "'");
    shape.out_features += part.shape[0];
  }
  return shape;
}

}  // namespace

void check_float_matrix(const TensorView& view) {
  check_float(view);
  check_matrix(view);
}

PackShape checked_pack_shape(std::span<const TensorView> parts) {
  for (const TensorView& part : parts) check_float(part);
  return concatenated_shape(parts);
}

PackShape checked_pack_shape(std::span<const DecodedRows> parts) {
  KVCAL_CHECK(!parts.empty());
  PackShape shape{.out_features = 0, .in_features = parts[0].decoder->width()};
  for (const DecodedRows& part : parts) {
    KVCAL_CHECK(part.decoder->width() == shape.in_features);
    shape.out_features += part.count;
  }
  return shape;
}

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

void decode_rows(std::span<const DecodedRows> parts, int64_t first, int64_t count, float* out) {
  for (const DecodedRows& part : parts) {
    const int64_t begin = std::min(first, part.count), taken = std::min(count, part.count - begin);
    if (taken > 0) part.decoder->decode(part.first + begin, taken, out);
    out += taken * part.decoder->width();
    first -= begin;
    count -= taken;
  }
}

}  // namespace kvcal
