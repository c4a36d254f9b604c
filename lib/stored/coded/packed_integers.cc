#include <algorithm>
#include <cstring>

#include "stored/integer_matrix.h"

namespace kvcal {
namespace {

constexpr std::string_view kPacked = ".weight_packed", kPackedShape = ".weight_shape",
                           kPlainWeight = ".weight", kScale = ".weight_scale",
                           kZero = ".weight_zero_point", kPackedIndex = ".weight_g_idx";

class PackedIntegerMatrix : public IntegerMatrix {
 public:
  PackedIntegerMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales,
                      ColumnGroups groups, const PackedIntegerArgs& args, PackedBits bits,
                      bool packs_zeros)
      : IntegerMatrix(std::move(shape), std::move(codes), std::move(scales), std::move(groups)),
        args_(args),
        bits_(bits),
        packs_zeros_(packs_zeros) {}

  int bits() const override { return args_.bits; }

  void read_block(const Block& block, uint8_t* codes) const override {
    const std::byte* const bytes = codes_.bytes.data();
    const int64_t words = codes_.shape[1];
    for (int64_t row = block.row; row < block.row + block.rows; ++row, codes += block.columns) {
      if (args_.is_packed) {
        bits_.unpack(bytes + row * words * 4, block.column,
                     {codes, static_cast<size_t>(block.columns)});
        continue;
      }
      const std::byte* const from = bytes + row * width() + block.column;
      for (int64_t i = 0; i < block.columns; ++i)
        codes[i] = static_cast<uint8_t>(from[i] ^ std::byte{0x80});
    }
  }

  void read_zeros(int64_t first, int64_t count, int32_t* zeros) const override {
    const int32_t middle = 1 << (args_.bits - 1);
    const int64_t groups = this->groups().groups;
    if (args_.is_symmetric) {
      std::fill_n(zeros, count * groups, middle);
      return;
    }
    const TensorView& stored = scales_[1];
    for (int64_t row = 0; row < count; ++row)
      for (int64_t group = 0; group < groups; ++group)
        zeros[row * groups + group] =
            packs_zeros_ ? packed_zero(stored, first + row, group)
                         : middle + static_cast<int8_t>(stored.bytes[static_cast<size_t>(
                                        args_.is_tensor ? 0 : (first + row) * groups + group)]);
  }

  void read_scales(int64_t first, int64_t count, float* scales) const override {
    const int64_t groups = this->groups().groups;
    if (args_.is_tensor)
      std::fill_n(scales, count * groups, scale_at(scales_[0], 0));
    else
      scales_at(scales_[0], first * groups, {scales, static_cast<size_t>(count * groups)});
  }

 private:
  /// The column of words of a group holds the rows' zero points; the words of a row may be two.
  int32_t packed_zero(const TensorView& stored, int64_t row, int64_t group) const {
    const int64_t words = stored.shape[0], groups = stored.shape[1];
    const int64_t bit = bits_.first_bit(row), word = bit / 32;
    uint64_t both = static_cast<uint32_t>(int32_at(stored, word * groups + group));
    if (word + 1 < words)
      both |= static_cast<uint64_t>(
                  static_cast<uint32_t>(int32_at(stored, (word + 1) * groups + group)))
              << 32;
    return static_cast<int32_t>(both >> (bit % 32) & ((1u << bits_.bits) - 1u));
  }

  PackedIntegerArgs args_;
  PackedBits bits_;
  bool packs_zeros_;
};

/// Shape of the weight. Sets how codes whose bits do not divide 32 are packed.
Shape packed_shape(ModuleTensors& tensors, const TensorView& codes, PackedBits& bits) {
  const TensorView& written = tensors.need(kPackedShape, {DType::kI64, DType::kI32}, 1);
  if (written.shape[0] != 2) fail_shape(written, {2});
  const auto at = [&](int64_t i) {
    int64_t value = 0;
    if (written.dtype == DType::kI32) return static_cast<int64_t>(int32_at(written, i));
    std::memcpy(&value, written.bytes.data() + 8 * static_cast<size_t>(i), sizeof(value));
    return value;
  };
  const Shape shape{at(0), at(1)};
  constexpr int64_t kMost = int64_t{1} << 40;
  if (shape[0] != codes.shape[0] || shape[1] < 1 || shape[1] > kMost)
    fail("misshapen: ", written.name, " says ", shape, ", and ", codes.name, " is ", codes.shape);
  // compressed-tensors packs densely from 0.19 on; older versions leave spare bits.
  bits.crosses_words = bits.words_of(shape[1]) != codes.shape[1];
  if (!bits.fits(codes.shape[1], shape[1]))
    fail("misshapen: ", codes.name, " is ", codes.shape, ", expected ",
         Shape{shape[0], bits.words_of(shape[1])}, " for ", shape, " of ",
         counted(bits.bits, "bit"));
  return shape;
}

void add_zeros(ModuleTensors& tensors, const Shape& shape, const Shape& grid,
               const PackedBits& bits, bool packs_zeros, std::vector<TensorView>& scales) {
  scales.push_back(packs_zeros
                       ? tensors.need(kZero, {DType::kI32}, Shape{bits.words_of(shape[0]), grid[1]})
                       : tensors.need(kZero, {DType::kI8}, grid));
  TensorView& zeros = scales.back();
  if (packs_zeros) zeros.shape = {bits.words_of(shape[0]), grid[1]};
}

TensorView index_of(const TensorView& index, const Shape& shape) {
  if (index.shape != Shape{shape[1]}) fail_shape(index, {shape[1]});
  if (index.dtype != DType::kI32)
    fail("unreadable: ", index.name, " is ", index.dtype, ", expected I32");
  return index;
}

std::unique_ptr<CodedMatrix> open_packed(ModuleTensors& tensors, const PackedIntegerArgs& args) {
  PackedBits bits{.bits = args.bits};
  const TensorView& codes = args.is_packed ? tensors.need(kPacked, {DType::kI32}, 2)
                                           : tensors.need(kPlainWeight, {DType::kI8}, 2);
  const Shape shape = args.is_packed ? packed_shape(tensors, codes, bits) : codes.shape;
  ColumnGroups groups{.groups = 1, .group = shape[1], .index = {}};
  if (args.group > 0) {
    groups.groups = divided_up(shape[1], args.group);
    groups.group = args.group;
  }
  const Shape grid = args.is_tensor ? Shape{1} : Shape{shape[0], groups.groups};
  std::vector<TensorView> scales{tensors.need(kScale, kFloats, grid)};
  check_scales(scales[0]);
  const bool packs_zeros = args.is_packed && !args.is_tensor;
  if (!args.is_symmetric) add_zeros(tensors, shape, grid, bits, packs_zeros, scales);
  if (const TensorView* index = tensors.find(kPackedIndex, {DType::kI32, DType::kI64})) {
    groups.index = index_of(*index, shape);
    scales.push_back(*index);
  }
  check_index(groups);
  tensors.pass(".input_scale");
  tensors.pass(".input_zero_point");
  return std::make_unique<PackedIntegerMatrix>(shape, codes, std::move(scales), std::move(groups),
                                               args, bits, packs_zeros);
}

}  // namespace

CodeFormat packed_integers(const PackedIntegerArgs& args) {
  return {.codes_name = args.is_packed ? kPacked : kScale,
          .open = [args](ModuleTensors& tensors) { return open_packed(tensors, args); }};
}

}  // namespace kvcal
