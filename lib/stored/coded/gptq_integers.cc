#include <algorithm>
#include <array>
#include <cstring>

#include "quant/packed_bits.h"
#include "stored/integer_matrix.h"

namespace kvcal {
namespace {

constexpr std::string_view kGroupIndex = ".g_idx";
/// Place of output k among the eight 4-bit codes of AWQ's word. Source: AutoAWQ 0.2.9 `pack`.
constexpr std::array<int, 8> kAwqPlaces{0, 4, 1, 5, 2, 6, 3, 7};

/// Scales [groups, out] and zero points packed along out.
class ColumnMatrix : public IntegerMatrix {
 public:
  using IntegerMatrix::IntegerMatrix;

  void read_scales(int64_t first, int64_t count, float* scales) const override {
    const int64_t groups = this->groups().groups;
    std::vector<float> line(static_cast<size_t>(count));
    for (int64_t group = 0; group < groups; ++group) {
      scales_at(scales_[0], group * rows() + first, line);
      for (int64_t row = 0; row < count; ++row)
        scales[row * groups + group] = line[static_cast<size_t>(row)];
    }
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

  void read_block(const Block& block, uint8_t* codes) const override {
    with_bits(args_.bits, [&](auto bits) { read_columns<decltype(bits)::value>(block, codes); });
  }

  void read_zeros(int64_t first, int64_t count, int32_t* zeros) const override {
    const int64_t groups = this->groups().groups, words = scales_[1].shape[1];
    const int32_t mask = (1 << args_.bits) - 1;
    std::vector<uint8_t> line(static_cast<size_t>(count));
    for (int64_t group = 0; group < groups; ++group) {
      bits_.unpack(scales_[1].bytes.data() + group * words * 4, first, line);
      for (int64_t row = 0; row < count; ++row) {
        const int32_t stored = line[static_cast<size_t>(row)];
        zeros[row * groups + group] = args_.stores_less_one ? (stored + 1) & mask : stored;
      }
    }
  }

 private:
  /// 32 codes of a column fill kBits words, one below the other.
  template <int kBits>
  void read_columns(const Block& block, uint8_t* codes) const {
    const int64_t whole = block.columns / 32 * 32, line = block.column * kBits / 32;
    std::array<std::byte, 4 * kBits> column{};
    for (int64_t begin = 0; begin < whole; begin += 32)
      for (int64_t row = 0; row < block.rows; ++row) {
        gather_words(line + begin * kBits / 32, block.row + row, column);
        unpack_eights<kBits>(column.data(), 4, codes + row * block.columns + begin);
      }
    const int64_t rest = block.columns - whole;
    const auto bytes = static_cast<size_t>(bits_.words_of(rest) * 4);
    for (int64_t row = 0; rest > 0 && row < block.rows; ++row) {
      gather_words(line + whole * kBits / 32, block.row + row, std::span(column).first(bytes));
      bits_.unpack(column.data(), 0,
                   {codes + row * block.columns + whole, static_cast<size_t>(rest)});
    }
  }

  /// Words of a row, from the line on.
  void gather_words(int64_t line, int64_t row, std::span<std::byte> words) const {
    const std::byte* from = codes_.bytes.data() + (line * rows() + row) * 4;
    for (size_t at = 0; at < words.size(); at += 4, from += rows() * 4)
      std::memcpy(words.data() + at, from, 4);
  }

  GptqArgs args_;
  PackedBits bits_;
};

/// Eight bytes each of eight words.
using ByteSquare = std::array<uint64_t, 8>;

/// Exchanges byte i of word j with byte j of word i.
void transpose(ByteSquare& square) {
  // Squares of 4 x 4, then of 2 x 2, then single bytes change places across the diagonal.
  const auto exchange = [&](size_t distance, uint64_t mask) {
    const size_t shift = 8 * distance;
    for (size_t i = 0; i < square.size(); ++i) {
      if ((i & distance) != 0) continue;
      const uint64_t change = (square[i] >> shift ^ square[i + distance]) & mask;
      square[i] ^= change << shift;
      square[i + distance] ^= change;
    }
  };
  exchange(4, 0x00000000ffffffffu);
  exchange(2, 0x0000ffff0000ffffu);
  exchange(1, 0x00ff00ff00ff00ffu);
}

/// The codes of a word as bytes, in the order of outputs.
uint64_t awq_outputs(uint32_t word) {
  // Outputs 0, 2, 4, 6 lie in the low half, 1, 3, 5, 7 in the high half.
  const auto every_other = [](uint64_t half) {
    half = (half | half << 24) & 0x000000ff000000ffu;
    return (half | half << 12) & 0x000f000f000f000fu;
  };
  return every_other(word & 0xffffu) | every_other(word >> 16) << 8;
}

/// Names and signs of AWQ's layout.
struct AwqArgs {
  int64_t group = 0;  ///< 0: one for all columns
  std::string_view codes_name = kQWeight, scale_name = kQScales, zero_name = kQZeros;
  bool is_signed = false;
};

class AwqMatrix : public ColumnMatrix {
 public:
  AwqMatrix(Shape shape, TensorView codes, std::vector<TensorView> scales, ColumnGroups groups,
            const AwqArgs& args)
      : ColumnMatrix(std::move(shape), std::move(codes), std::move(scales), std::move(groups)),
        sign_bits_(args.is_signed ? 0x88888888u : 0) {}

  int bits() const override { return 4; }

  void read_block(const Block& block, uint8_t* codes) const override {
    const int64_t whole = block.columns / 8 * 8, end = block.row + block.rows;
    for (int64_t column = 0; column < whole; column += 8) {
      prefetch(block, column + kLinesAhead);
      for (int64_t word = block.row / 8; word * 8 < end; ++word) {
        ByteSquare square;
        for (size_t i = 0; i < square.size(); ++i)
          square[i] =
              awq_outputs(word_at(codes_, block.column + column + static_cast<int64_t>(i), word));
        transpose(square);
        for (int64_t row = std::max(block.row, word * 8); row < std::min(end, word * 8 + 8); ++row)
          std::memcpy(codes + (row - block.row) * block.columns + column,
                      &square[static_cast<size_t>(row % 8)], 8);
      }
    }
    for (int64_t column = whole; column < block.columns; ++column)
      for (int64_t row = 0; row < block.rows; ++row)
        codes[row * block.columns + column] =
            nibble(codes_, block.column + column, block.row + row);
  }

  void read_zeros(int64_t first, int64_t count, int32_t* zeros) const override {
    const int64_t groups = this->groups().groups;
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t row = 0; row < count; ++row)
        zeros[row * groups + group] = nibble(scales_[1], group, first + row);
  }

 private:
  /// Eight lines, each of which begins in another page: the processor does not foresee them.
  void prefetch(const Block& block, int64_t column) const {
    for (int64_t line = block.column + column; line < std::min(block.column + column + 8, width());
         ++line)
      __builtin_prefetch(codes_.bytes.data() + (line * codes_.shape[1] + block.row / 8) * 4);
  }
  static constexpr int64_t kLinesAhead = 32;

  /// Codes and zero points that are signed are moved by 8.
  uint32_t word_at(const TensorView& words, int64_t line, int64_t word) const {
    return static_cast<uint32_t>(int32_at(words, line * words.shape[1] + word)) ^ sign_bits_;
  }
  uint8_t nibble(const TensorView& words, int64_t line, int64_t output) const {
    const uint32_t word = word_at(words, line, output / 8);
    return static_cast<uint8_t>(word >> (4 * kAwqPlaces[static_cast<size_t>(output % 8)]) & 15u);
  }

  uint32_t sign_bits_;
};

/// Groups, scales and zero points, which both layouts store alike.
struct ColumnParts {
  ColumnGroups groups;
  std::vector<TensorView> scales;
};

ColumnParts column_parts(ModuleTensors& tensors, const Shape& shape, const AwqArgs& args,
                         int bits) {
  ColumnParts parts;
  parts.groups.group = args.group > 0 ? args.group : shape[1];
  parts.groups.groups = divided_up(shape[1], parts.groups.group);
  const int64_t words = PackedBits{.bits = bits, .crosses_words = true}.words_of(shape[0]);
  parts.scales.push_back(
      tensors.need(args.scale_name, kFloats, Shape{parts.groups.groups, shape[0]}));
  parts.scales.push_back(
      tensors.need(args.zero_name, {DType::kI32}, Shape{parts.groups.groups, words}));
  parts.scales[1].shape = {parts.groups.groups, words};
  check_scales(parts.scales[0]);
  return parts;
}

std::unique_ptr<CodedMatrix> open_gptq(ModuleTensors& tensors, const GptqArgs& args) {
  const TensorView& codes = tensors.need(kQWeight, {DType::kI32}, 2);
  if (codes.shape[0] * 32 % args.bits != 0)
    fail("misshapen: ", codes.name, " has ", counted(codes.shape[0], "row"),
         " of words, which hold no "
         "whole number of codes of ",
         counted(args.bits, "bit"));
  const Shape shape{codes.shape[1], codes.shape[0] * 32 / args.bits};
  ColumnParts parts = column_parts(tensors, shape, {.group = args.group}, args.bits);
  if (args.needs_index || tensors.has(kGroupIndex)) {
    const TensorView& index = tensors.need(kGroupIndex, {DType::kI32}, Shape{shape[1]});
    parts.groups.index = index;
    check_index(parts.groups);
    parts.scales.push_back(index);
  }
  return std::make_unique<GptqMatrix>(shape, codes, std::move(parts.scales),
                                      std::move(parts.groups), args);
}

std::unique_ptr<CodedMatrix> open_awq(ModuleTensors& tensors, const AwqArgs& args) {
  const TensorView& codes = tensors.need(args.codes_name, {DType::kI32}, 2);
  const Shape shape{codes.shape[1] * 8, codes.shape[0]};
  ColumnParts parts = column_parts(tensors, shape, args, 4);
  return std::make_unique<AwqMatrix>(shape, codes, std::move(parts.scales), std::move(parts.groups),
                                     args);
}

}  // namespace

CodeFormat gptq_integers(const GptqArgs& args) {
  return {.codes_name = kQWeight,
          .open = [args](ModuleTensors& tensors) { return open_gptq(tensors, args); }};
}

CodeFormat awq_integers(int64_t group) {
  return {.codes_name = kQWeight,
          .open = [group](ModuleTensors& tensors) { return open_awq(tensors, {.group = group}); }};
}

CodeFormat quark_integers(int64_t group, bool is_signed) {
  const AwqArgs args{.group = group,
                     .codes_name = ".weight",
                     .scale_name = ".weight_scale",
                     .zero_name = ".weight_zero_point",
                     .is_signed = is_signed};
  return {.codes_name = args.scale_name, .open = [args](ModuleTensors& tensors) {
            auto matrix = open_awq(tensors, args);
            tensors.pass(".input_scale");
            tensors.pass(".input_zero_point");
            return matrix;
          }};
}

}  // namespace kvcal
