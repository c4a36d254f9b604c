#include "core/tensor.h"

#include <array>
#include <ostream>

#include "core/number.h"

namespace kvcal {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array<DTypeRow, 22> kDTypes{{
    {DType::kBool, "BOOL", 8},
    {DType::kF4, "F4", 4},
    {DType::kF6E2M3, "F6_E2M3", 6},
    {DType::kF6E3M2, "F6_E3M2", 6},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {DType::kI16, "I16", 16},
    {DType::kU16, "U16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBF16, "BF16", 16},
    {DType::kI32, "I32", 32},
    {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},
    {DType::kC64, "C64", 64},
    {DType::kF64, "F64", 64},
    {DType::kI64, "I64", 64},
    {DType::kU64, "U64", 64},
}};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kDTypes)
    if (row.dtype == dtype) return row;
  KVCAL_CHECK(false);
  __builtin_unreachable();
}

}  // namespace

std::string_view name_of(DType dtype) {
  return row_of(dtype).name;
}
int bits_of_dtype(DType dtype) {
  return row_of(dtype).bits;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeRow& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

std::ostream& operator<<(std::ostream& out, DType dtype) {
  return out << name_of(dtype);
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (size_t i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ']';
}

uint64_t element_count(const Shape& shape) {
  uint64_t count = 1;
  for (const int64_t dim : shape.dims) {
    if (dim < 0) fail("shape ", shape, " has a negative dimension");
    count = checked_mul(count, static_cast<uint64_t>(dim));
  }
  return count;
}

uint64_t byte_count(const Shape& shape, DType dtype) {
  const uint64_t bits =
      checked_mul(element_count(shape), static_cast<uint64_t>(bits_of_dtype(dtype)));
  if (bits % 8 != 0) fail("shape ", shape, " of ", dtype, " does not fill whole bytes");
  return bits / 8;
}

}  // namespace kvcal
