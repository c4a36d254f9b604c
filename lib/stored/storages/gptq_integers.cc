#include <algorithm>
#include <array>
#include <cstring>

#include "stored/integer_matrix.h"

namespace kvcal {
namespace {

constexpr std::string_view kQWeight = ".qweight", kQZeros = ".qzeros", kGptqScales = ".scales",
                           kGroupIndex = ".g_idx";
/// Place of output k among the eight 4-bit codes of AWQ's word. Source: AutoAWQ 0.2.9 `pack`.
constexpr std::array<int, 8> kAwqPlaces{0, 4, 1, 5, 2, 6, 3, 7};

/// Scales [groups, out] and zero points packed along out.
class ColumnMatrix : public IntegerMatrix {
 public:
  using IntegerMatrix::IntegerMatrix;

  void read_scales(int64_t first, int64_t count, float* scales) const override {
    const int64_t groups = this->groups().groups;
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t row = 0; row < count; ++row)
        scales[row * groups + group] = scale_at(scales_[0], group * rows() + first + row);
  }
};

class GptqMatrix : public ColumnMatrix {
 public:
  GptqMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales, ColumnGroups groups,
             const GptqArgs& args)
      : ColumnMatrix(std::move(shape), std::move(codes), std::move(scales), std::move(groups)),
        args_(args),
        bits_{.bits = args.bits, .crosses_words = true} {}

  int bits() const override { return args_.bits; }

  void read_codes(int64_t first, int64_t count, uint8_t* codes) const override {
    // 32 codes of a column fill `bits` words, one below the other.
    const int64_t bits = args_.bits, width = this->width();
    std::array<std::byte, 32> column{};
    for (int64_t begin = 0; begin < width; begin += 32) {
      const int64_t codes_here = std::min<int64_t>(32, width - begin);
      const int64_t words = bits_.words_of(codes_here), first_word = begin * bits / 32;
      for (int64_t row = 0; row < count; ++row) {
        for (int64_t word = 0; word < words; ++word)
          std::memcpy(column.data() + word * 4,
                      codes_.bytes.data() + ((first_word + word) * rows() + first + row) * 4, 4);
        bits_.unpack(column.data(), 0,
                     {codes + row * width + begin, static_cast<size_t>(codes_here)});
      }
    }
  }

  void read_zeros(int64_t first, int64_t count, int32_t* zeros) const override {
    const int64_t groups = this->groups().groups, words = scales_[1].shape[1];
    const int32_t mask = (1 << args_.bits) - 1;
    for (int64_t group = 0; group < groups; ++group) {
      const std::byte* const row_words = scales_[1].bytes.data() + group * words * 4;
      for (int64_t row = 0; row < count; ++row) {
        const int32_t stored = bits_.at(row_words, first + row);
        zeros[row * groups + group] = args_.stores_less_one ? (stored + 1) & mask : stored;
      }
    }
  }

 private:
  GptqArgs args_;
  PackedBits bits_;
};

class AwqMatrix : public ColumnMatrix {
 public:
  using ColumnMatrix::ColumnMatrix;

  int bits() const override { return 4; }

  void read_codes(int64_t first, int64_t count, uint8_t* codes) const override {
    for (int64_t column = 0; column < width(); ++column)
      for (int64_t row = 0; row < count; ++row)
        codes[row * width() + column] = nibble(codes_, column, first + row);
  }

  void read_zeros(int64_t first, int64_t count, int32_t* zeros) const override {
    const int64_t groups = this->groups().groups;
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t row = 0; row < count; ++row)
        zeros[row * groups + group] = nibble(scales_[1], group, first + row);
  }

 private:
  static uint8_t nibble(const TensorView& words, int64_t line, int64_t output) {
    const auto word = static_cast<uint32_t>(int32_at(words, line * words.shape[1] + output / 8));
    return static_cast<uint8_t>(word >> (4 * kAwqPlaces[static_cast<size_t>(output % 8)]) & 15u);
  }
};

/// Groups, scales and zero points, which both layouts store alike.
struct ColumnParts {
  ColumnGroups groups;
  std::vector<TensorView> scales;
};

ColumnParts column_parts(ModuleTensors& tensors, const Shape& shape, int64_t group, int bits) {
  ColumnParts parts;
  parts.groups.group = group > 0 ? group : shape[1];
  parts.groups.groups = (shape[1] + parts.groups.group - 1) / parts.groups.group;
  const int64_t words = PackedBits{.bits = bits, .crosses_words = true}.words_of(shape[0]);
  parts.scales.push_back(tensors.need(kGptqScales, kFloats, Shape{parts.groups.groups, shape[0]}));
  parts.scales.push_back(tensors.need(kQZeros, {DType::kI32}, Shape{parts.groups.groups, words}));
  parts.scales[1].shape = {parts.groups.groups, words};
  check_scales(parts.scales[0]);
  return parts;
}

class GptqIntegers : public CodedStorage {
 public:
  explicit GptqIntegers(const GptqArgs& args) : args_(args) {}
  std::string_view codes_name() const override { return kQWeight; }

  std::unique_ptr<CodedMatrix> open(ModuleTensors& tensors) const override {
    const TensorView& codes = tensors.need(kQWeight, {DType::kI32}, 2);
    if (codes.shape[0] * 32 % args_.bits != 0)
      fail("misshapen: ", codes.name, " has ", codes.shape[0],
           " rows of words, which hold no "
           "whole number of codes of ",
           args_.bits, " bits");
    const Shape shape{codes.shape[1], codes.shape[0] * 32 / args_.bits};
    ColumnParts parts = column_parts(tensors, shape, args_.group, args_.bits);
    if (args_.needs_index || tensors.has(kGroupIndex)) {
      const TensorView& index = tensors.need(kGroupIndex, {DType::kI32}, Shape{shape[1]});
      parts.groups.index = index;
      check_index(parts.groups);
      parts.scales.push_back(index);
    }
    return std::make_unique<GptqMatrix>(shape, codes, std::move(parts.scales),
                                        std::move(parts.groups), args_);
  }

 private:
  GptqArgs args_;
};

class AwqIntegers : public CodedStorage {
 public:
  explicit AwqIntegers(int64_t group) : group_(group) {}
  std::string_view codes_name() const override { return kQWeight; }

  std::unique_ptr<CodedMatrix> open(ModuleTensors& tensors) const override {
    const TensorView& codes = tensors.need(kQWeight, {DType::kI32}, 2);
    const Shape shape{codes.shape[1] * 8, codes.shape[0]};
    ColumnParts parts = column_parts(tensors, shape, group_, 4);
    return std::make_unique<AwqMatrix>(shape, codes, std::move(parts.scales),
                                       std::move(parts.groups));
  }

 private:
  int64_t group_;
};

}  // namespace

std::unique_ptr<CodedStorage> gptq_integers(const GptqArgs& args) {
  return std::make_unique<GptqIntegers>(args);
}

std::unique_ptr<CodedStorage> awq_integers(int64_t group) {
  return std::make_unique<AwqIntegers>(group);
}

}  // namespace kvcal
