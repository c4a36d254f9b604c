#include "stored/coded_matrix.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "quant/e2m1.h"
#include "quant/fp8_values.h"
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
  float value = 0;
  scales_at(scales, index, {&value, 1});
  return value;
}

int32_t int32_at(const TensorView& tensor, int64_t index) {
  int32_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * static_cast<size_t>(index), sizeof(value));
  return value;
}

void scales_at(const TensorView& scales, int64_t first, std::span<float> values) {
  if (scales.is_hollow()) throw HollowTensor(scales.name);
  // One switch for each dtype, not one for each value.
  const std::byte* const bytes = scales.bytes.data();
  const auto read = [&]<class Bits>(Bits, const auto& value_of) {
    for (size_t i = 0; i < values.size(); ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + (static_cast<size_t>(first) + i) * sizeof(bits), sizeof(bits));
      values[i] = value_of(bits);
    }
  };
  switch (scales.dtype) {
    case DType::kF32:
      return read(float(), [](float value) { return value; });
    case DType::kF16:
      return read(uint16_t(), [](uint16_t bits) { return to_float(F16{bits}); });
    case DType::kBF16:
      return read(uint16_t(), [](uint16_t bits) { return to_float(BF16{bits}); });
    case DType::kF8E4M3:
      return read(uint8_t(), [](uint8_t code) { return fp8::kE4m3Values[code]; });
    default:
      read(uint8_t(), [](uint8_t code) { return e8m0::decode(code); });
  }
}

namespace {

/// Whether the bits of every scale, as an unsigned integer, are in [least, end).
template <class Bits>
bool all_between(std::span<const std::byte> bytes, Bits least, Bits end) {
  const auto width = static_cast<Bits>(end - least);
  Bits outside = 0;  // without a branch, so that the compiler vectorizes the loop
  for (size_t i = 0; i < bytes.size() / sizeof(Bits); ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    outside |= static_cast<Bits>(static_cast<Bits>(bits - least) >= width ? 1 : 0);
  }
  return outside == 0;
}

/// Whether every scale is positive and finite.
bool are_scales(const TensorView& scales) {
  switch (scales.dtype) {
    case DType::kF32:
      return all_between<uint32_t>(scales.bytes, 1, 0x7f800000u);
    case DType::kF16:
      return all_between<uint16_t>(scales.bytes, 1, 0x7c00u);
    case DType::kBF16:
      return all_between<uint16_t>(scales.bytes, 1, 0x7f80u);
    case DType::kF8E4M3:
      return all_between<uint8_t>(scales.bytes, 1, 0x7fu);
    default:
      return all_between<uint8_t>(scales.bytes, 0, e8m0::kNan);
  }
}

}  // namespace

void check_scales(const TensorView& scales) {
  if (scales.is_hollow() || are_scales(scales)) return;
  const auto count = static_cast<int64_t>(element_count(scales.shape));
  for (int64_t i = 0; i < count; ++i) {
    const float value = scale_at(scales, i);
    if (!std::isfinite(value) || value <= 0.0f)
      fail("unreadable: ", scales.name, " holds ", value, ", expected finite positive scales");
  }
}

}  // namespace kvcal
