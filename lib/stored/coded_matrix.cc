#include "stored/coded_matrix.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "quant/e2m1.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace kvcal {

CodedMatrix::CodedMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales)
    : codes_(std::move(codes)), scales_(std::move(scales)), shape_(std::move(shape)) {
  KVCAL_CHECK(shape_.rank() == 2);
}

uint64_t CodedMatrix::stored_bytes() const {
  uint64_t bytes = codes_.bytes.size();
  for (const TensorView& scale : scales_) bytes += scale.bytes.size();
  return bytes;
}

QuantArgs CodedMatrix::packed_args() const {
  KVCAL_CHECK(false);
  return {};
}

std::vector<TensorSource> CodedMatrix::packed_tensors(const std::string&, const QuantArgs&,
                                                      const RowChoice&) const {
  KVCAL_CHECK(false);
  return {};
}

float scale_at(const TensorView& scales, int64_t index) {
  const auto at = static_cast<size_t>(index);
  const std::byte* const bytes = scales.bytes.data();
  float value = 0;
  uint16_t half = 0;
  switch (scales.dtype) {
    case DType::kF32:
      std::memcpy(&value, bytes + 4 * at, sizeof(value));
      return value;
    case DType::kF16:
      std::memcpy(&half, bytes + 2 * at, sizeof(half));
      return to_float(F16{half});
    case DType::kBF16:
      std::memcpy(&half, bytes + 2 * at, sizeof(half));
      return to_float(BF16{half});
    case DType::kF8E4M3:
      return fp8::decode(static_cast<uint8_t>(bytes[at]), fp8::Format::kE4m3Fn);
    default:
      return e8m0::decode(static_cast<uint8_t>(bytes[at]));
  }
}

int32_t int32_at(const TensorView& tensor, int64_t index) {
  int32_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * static_cast<size_t>(index), sizeof(value));
  return value;
}

void check_scales(const TensorView& scales) {
  const auto count = static_cast<int64_t>(element_count(scales.shape));
  for (int64_t i = 0; i < count; ++i) {
    const float value = scale_at(scales, i);
    if (!std::isfinite(value) || value <= 0.0f)
      fail("unreadable: ", scales.name, " holds ", value, ", expected finite positive scales");
  }
}

}  // namespace kvcal
