// AWQ's versions gemv and gemv_fast, which hold rows as the Linear has them.
#include <algorithm>

#include "quant/half.h"
#include "quant/packed_bits.h"
#include "stored/integer_matrix.h"

namespace kvcal {
namespace {

/// Words of eight 4-bit zero points in a row, padded for the kernels. Source: AutoAWQ 0.2.9
/// `calculate_zeros_width`.
int64_t padded_words(int64_t groups, int64_t group) {
  const int64_t multiple = group >= 128 ? 1 : group == 64 ? 2 : 4;
  return divided_up(divided_up(groups, 8), multiple) * multiple;
}

/// Groups of the matrix's columns. Throws Error where group does not divide them.
ColumnGroups whole_groups(const TensorView& codes, int64_t width, int64_t group) {
  ColumnGroups groups{.groups = 1, .group = group > 0 ? group : width, .index = {}};
  if (width == 0 || width % groups.group != 0)
    fail("misshapen: ", codes.name, " is ", codes.shape, ", which is ", counted(width, "column"),
         ", expected a multiple of the ", groups.group, " that share a scale");
  groups.groups = width / groups.group;
  return groups;
}

class GemvMatrix : public IntegerMatrix {
 public:
  using IntegerMatrix::IntegerMatrix;

  int bits() const override { return 4; }

  void read_block(const Block& block, uint8_t* codes) const override {
    const int64_t row_bytes = codes_.shape[1] * 4;
    for (int64_t row = 0; row < block.rows; ++row)
      PackedBits{.bits = 4}.unpack(
          codes_.bytes.data() + (block.row + row) * row_bytes, block.column,
          {codes + row * block.columns, static_cast<size_t>(block.columns)});
  }

  void read_zeros(int64_t first, int64_t count, int32_t* zeros) const override {
    const int64_t row_bytes = scales_[1].shape[1] * 4;
    std::vector<uint8_t> line(static_cast<size_t>(groups().groups));
    for (int64_t row = first; row < first + count; ++row) {
      PackedBits{.bits = 4}.unpack(scales_[1].bytes.data() + row * row_bytes, 0, line);
      zeros = std::ranges::copy(line, zeros).out;
    }
  }

  void read_scales(int64_t first, int64_t count, float* scales) const override {
    const int64_t groups = this->groups().groups;
    for (int64_t row = 0; row < count; ++row)
      scales_at(scales_[0], (first + row) * scales_[0].shape[1],
                {scales + row * groups, static_cast<size_t>(groups)});
  }
};

std::unique_ptr<CodedMatrix> open_gemv(ModuleTensors& tensors, int64_t group) {
  const TensorView& codes = tensors.need(kQWeight, {DType::kI32}, 2);
  const Shape shape{codes.shape[0], codes.shape[1] * 8};
  const ColumnGroups groups = whole_groups(codes, shape[1], group);
  const int64_t words = padded_words(groups.groups, groups.group);
  const TensorView& scales = tensors.need(kQScales, kFloats, Shape{shape[0], words * 8});
  const TensorView& zeros = tensors.need(kQZeros, {DType::kI32}, Shape{shape[0], words});
  return std::make_unique<GemvMatrix>(shape, codes, std::vector{scales, zeros}, groups);
}

/// Rows that the kernel reads together, and the columns of each that lie next to each other.
constexpr int64_t kRowsTogether = 4, kColumnsTogether = 64;

class GemvFastMatrix : public CodedMatrix {
 public:
  GemvFastMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales, int64_t group)
      : CodedMatrix(std::move(shape), std::move(codes), std::move(scales)), group_(group) {}

  void decode(int64_t first, int64_t count, float* out) const override {
    for (int64_t row = first; row < first + count; ++row)
      for (int64_t column = 0; column < width(); column += group_) {
        const int64_t at = column / group_ * rows() + row;
        const float scale = scale_at(scales_[0], at), added = scale_at(scales_[1], at);
        for (int64_t i = column; i < column + group_; ++i)
          *out++ = static_cast<float>(code_at(row, i)) * scale + added;
      }
  }

  std::string packing_problem() const override {
    return "AWQ's version gemv_fast holds rounded products of scales and zero points, which "
           "compressed-tensors cannot hold";
  }

 private:
  /// Four rows' blocks of 64 codes lie one behind the other; of 32 codes, every eighth column comes
  /// first. Source: AutoAWQ 0.2.9 `pack_intweight`.
  uint32_t code_at(int64_t row, int64_t column) const {
    const int64_t block = column / kColumnsTogether * kColumnsTogether;
    const int64_t in_block = column % kColumnsTogether;
    const int64_t place = in_block / 32 * 32 + in_block % 8 * 4 + in_block % 32 / 8;
    const int64_t nibble = (row / kRowsTogether * width() + block) * kRowsTogether +
                           row % kRowsTogether * kColumnsTogether + place;
    const auto byte = static_cast<uint32_t>(codes_.bytes[static_cast<size_t>(nibble / 2)]);
    return byte >> (nibble % 2 * 4) & 15u;
  }

  int64_t group_;
};

std::unique_ptr<CodedMatrix> open_gemv_fast(ModuleTensors& tensors, int64_t group) {
  const TensorView& codes = tensors.need(kQWeight, {DType::kI16}, 2);
  const Shape shape{codes.shape[0] * kRowsTogether, codes.shape[1]};
  if (shape[1] % kColumnsTogether != 0)
    fail("misshapen: ", codes.name, " is ", codes.shape, ", expected a multiple of ",
         kColumnsTogether, " columns");
  const ColumnGroups groups = whole_groups(codes, shape[1], group);
  const Shape grid{padded_words(groups.groups, groups.group) * 8, shape[0]};
  const TensorView& scales = tensors.need(kQScales, {DType::kF16}, grid);
  const TensorView& zeros = tensors.need(kQZeros, {DType::kF16}, grid);
  return std::make_unique<GemvFastMatrix>(shape, codes, std::vector{scales, zeros}, groups.group);
}

}  // namespace

CodeFormat awq_gemv_integers(int64_t group) {
  return {.codes_name = kQWeight,
          .open = [group](ModuleTensors& tensors) { return open_gemv(tensors, group); }};
}

CodeFormat awq_gemv_fast_codes(int64_t group) {
  return {.codes_name = kQWeight,
          .open = [group](ModuleTensors& tensors) { return open_gemv_fast(tensors, group); }};
}

}  // namespace kvcal
