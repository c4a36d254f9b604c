#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace kvcal {

/// Element types of a safetensors header. Source: safetensors `Dtype`.
enum class DType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// safetensors' name, "BF16".
std::string_view name_of(DType dtype);
/// Bits of an element; F4 and F6 are packed.
int bits_of_dtype(DType dtype);
/// Whether dtype is F32, F16 or BF16, from which weights and scales are computed.
constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}
std::optional<DType> dtype_from_name(std::string_view name);
std::ostream& operator<<(std::ostream& out, DType dtype);

/// Elements of 16-bit floats as stored: arithmetic goes through quant/half.h.
struct F16 {
  uint16_t bits = 0;
};
struct BF16 {
  uint16_t bits = 0;
};

template <class T>
inline constexpr DType kDTypeOf = T::kNoDTypeForThisType;
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kF64;
template <>
inline constexpr DType kDTypeOf<F16> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<BF16> = DType::kBF16;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kU8;
template <>
inline constexpr DType kDTypeOf<int8_t> = DType::kI8;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kI32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kI64;

/// Outermost dimension first; empty means scalar; prints as [2, 3].
struct Shape {
  std::vector<int64_t> dims;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) : dims(list) {}
  explicit Shape(std::vector<int64_t> list) : dims(std::move(list)) {}
  size_t rank() const { return dims.size(); }
  int64_t operator[](size_t i) const { return dims[i]; }
  bool operator==(const Shape&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Product of the dimensions; 1 for a scalar. Throws Error on overflow or a negative dimension.
uint64_t element_count(const Shape& shape);
/// Bytes of a tensor of this shape and dtype. Throws Error on overflow, and where packed elements
/// do not fill whole bytes.
uint64_t byte_count(const Shape& shape, DType dtype);

/// Thrown where an answer depends on values of a tensor that the file does not hold.
class HollowTensor : public Error {
 public:
  explicit HollowTensor(std::string_view name)
      : Error("depends on values of " + std::string(name) + ", which were not fetched") {}
};

/// Bytes of a tensor owned elsewhere, row-major. Copy freely; do not outlive the owner.
struct TensorView {
  std::string_view name;  ///< full checkpoint name, for messages
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;

  /// Whether bytes has a size alone: the file does not hold the tensor's values
  /// (checkpoint/hollow_file.h).
  bool is_hollow() const { return bytes.data() == nullptr && !bytes.empty(); }
  /// The elements as T. Throws Error if the dtype differs or the bytes are not aligned for T, and
  /// HollowTensor.
  template <class T>
  std::span<const T> as() const {
    if (is_hollow()) throw HollowTensor(name);
    if (dtype != kDTypeOf<T>) fail(name, " holds ", dtype, ", was read as ", kDTypeOf<T>);
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T) != 0)
      fail(name, " is not aligned for ", dtype);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// A tensor that owns its bytes.
struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;

  TensorView view() const& { return {name, dtype, shape, bytes}; }
  TensorView view() && = delete;
};

}  // namespace kvcal
