// Codes of every layout in matrices wider than the blocks that are decoded at a time, and of sizes
// that blocks do not divide, against the layouts' definitions code by code.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <set>

#include "quant/half.h"
#include "quant/packed_bits.h"
#include "stored/integer_matrix.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

using test::ScratchFolder;

uint8_t noise(size_t index) {
  return static_cast<uint8_t>((index * 2654435761u) >> 13);
}

Tensor tensor_of(const std::string& name, DType dtype, const Shape& shape) {
  Tensor tensor{name, dtype, shape, {}};
  tensor.bytes.resize(byte_count(shape, dtype));
  for (size_t i = 0; i < tensor.bytes.size(); ++i)
    tensor.bytes[i] = static_cast<std::byte>(noise(i + name.size()));
  return tensor;
}

Tensor scales_of(const std::string& name, const Shape& shape) {
  Tensor tensor = tensor_of(name, DType::kF16, shape);
  for (size_t i = 0; i < element_count(shape); ++i) {
    const uint16_t bits = to_f16(0.01f + 0.001f * static_cast<float>(i % 97)).bits;
    std::memcpy(tensor.bytes.data() + 2 * i, &bits, 2);
  }
  return tensor;
}

Tensor integers_of(const std::string& name, const std::vector<int64_t>& values, DType dtype) {
  const size_t size = dtype == DType::kI64 ? 8 : 4;
  Tensor tensor{name, dtype, {std::ssize(values)}, std::vector<std::byte>(values.size() * size)};
  for (size_t i = 0; i < values.size(); ++i)
    std::memcpy(tensor.bytes.data() + i * size, &values[i], size);
  return tensor;
}

/// The bits [bit, bit + count) of a tensor of words.
int32_t bits_at(const Tensor& tensor, int64_t bit, int count) {
  int32_t value = 0;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(bit + i);
    value |= (static_cast<int32_t>(tensor.bytes[at / 8]) >> (at % 8) & 1) << i;
  }
  return value;
}

float scale_of(const Tensor& scales, int64_t index) {
  return scale_at(scales.view(), index);
}

/// Opens the tensors as module "m" of a file, decodes them in several ranges and compares with
/// expected(row, column).
void check_values(const CodeFormat& storage, const std::vector<Tensor>& tensors, const Shape& shape,
                  const std::function<float(int64_t, int64_t)>& expected) {
  const ScratchFolder scratch;
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(scratch / "model.safetensors", std::move(sources), {});
  test::write_file(scratch / "config.json", "{}");
  const ModelDir model_dir(scratch.path());
  const std::string module = "m";
  std::set<std::string, std::less<>> read;
  ModuleTensors found(model_dir, module, read);
  const auto matrix = storage.open(found);
  REQUIRE(matrix->shape() == shape);
  for (const int64_t first : {int64_t{0}, int64_t{1}, shape[0] / 2 + 3}) {
    const int64_t count = first == 0 ? shape[0] : std::min<int64_t>(9, shape[0] - first);
    std::vector<float> values(static_cast<size_t>(count * shape[1]));
    matrix->decode(first, count, values.data());
    int64_t wrong = 0;
    for (int64_t row = 0; row < count; ++row)
      for (int64_t column = 0; column < shape[1]; ++column)
        if (values[static_cast<size_t>(row * shape[1] + column)] != expected(first + row, column))
          ++wrong;
    INFO("rows from " << first);
    CHECK(wrong == 0);
  }
}

constexpr int64_t kRows = 136;

}  // namespace

TEST_CASE("packed integers of any width have the layout's values") {
  for (int bits = 1; bits <= 8; ++bits)
    for (const bool is_dense : {false, true})
      for (const int64_t width : {600, 257}) {
        INFO(bits << " bits, " << width << " columns, dense " << is_dense);
        const PackedBits packing{.bits = bits, .crosses_words = is_dense};
        const int64_t words = packing.words_of(width), groups = (width + 99) / 100;
        if (!is_dense && words == PackedBits{.bits = bits, .crosses_words = true}.words_of(width))
          continue;  // the same layout
        const Tensor codes = tensor_of("m.weight_packed", DType::kI32, {kRows, words});
        const Tensor scales = scales_of("m.weight_scale", {kRows, groups});
        const int64_t per_word = 32 / bits;
        check_values(packed_integers({.bits = bits, .group = 100}),
                     {codes, scales, integers_of("m.weight_shape", {kRows, width}, DType::kI64)},
                     {kRows, width}, [&](int64_t row, int64_t column) {
                       const int64_t bit = is_dense
                                               ? column * bits
                                               : column / per_word * 32 + column % per_word * bits;
                       const int32_t code = bits_at(codes, row * words * 32 + bit, bits);
                       return static_cast<float>(code - (1 << (bits - 1))) *
                              scale_of(scales, row * groups + column / 100);
                     });
      }
}

TEST_CASE("GPTQ's columns of any width have the layout's values") {
  for (const int bits : {2, 3, 4, 8})
    for (const bool is_ordered : {true, false})
      for (const int64_t width : {608, 32, 288}) {
        INFO(bits << " bits, " << width << " columns, ordered " << is_ordered);
        const int64_t groups = width / 32, words = (kRows * bits + 31) / 32;
        const Tensor codes = tensor_of("m.qweight", DType::kI32, {width * bits / 32, kRows});
        const Tensor zeros = tensor_of("m.qzeros", DType::kI32, {groups, words});
        const Tensor scales = scales_of("m.scales", {groups, kRows});
        std::vector<int64_t> index;
        for (int64_t i = 0; i < width; ++i)
          index.push_back(is_ordered ? i / 32 : (i * 7 + 3) % groups);
        check_values(gptq_integers({.bits = bits, .group = 32, .needs_index = true}),
                     {codes, zeros, scales, integers_of("m.g_idx", index, DType::kI32)},
                     {kRows, width}, [&](int64_t row, int64_t column) {
                       int32_t code = 0;  // bit by bit, each in the word of its line
                       for (int i = 0; i < bits; ++i) {
                         const int64_t bit = column * bits + i;
                         code |= bits_at(codes, (bit / 32 * kRows + row) * 32 + bit % 32, 1) << i;
                       }
                       const int64_t group = index[static_cast<size_t>(column)];
                       const int32_t stored = bits_at(zeros, group * words * 32 + row * bits, bits);
                       const int32_t zero = (stored + 1) & ((1 << bits) - 1);
                       return static_cast<float>(code - zero) *
                              scale_of(scales, group * kRows + row);
                     });
      }
}

TEST_CASE("AWQ's words of any width have the layout's values") {
  constexpr std::array<int64_t, 8> kOutputs{0, 2, 4, 6, 1, 3, 5, 7};  // of the word's nibbles
  const auto place = [&](int64_t output) {
    return std::ranges::find(kOutputs, output % 8) - kOutputs.begin();
  };
  for (const int64_t width : {600, 8, 261}) {
    INFO(width << " columns");
    const int64_t groups = (width + 31) / 32, words = kRows / 8;
    const Tensor codes = tensor_of("m.qweight", DType::kI32, {width, words});
    const Tensor zeros = tensor_of("m.qzeros", DType::kI32, {groups, words});
    const Tensor scales = scales_of("m.scales", {groups, kRows});
    check_values(awq_integers(32), {codes, zeros, scales}, {kRows, width},
                 [&](int64_t row, int64_t column) {
                   const auto nibble = [&](const Tensor& tensor, int64_t line) {
                     return bits_at(tensor, (line * words + row / 8) * 32 + 4 * place(row), 4);
                   };
                   return static_cast<float>(nibble(codes, column) - nibble(zeros, column / 32)) *
                          scale_of(scales, column / 32 * kRows + row);
                 });
  }
}

TEST_CASE("check_scales finds one bad scale among many, of every dtype") {
  const auto with = [](DType dtype, uint32_t good, uint32_t bad) {
    const auto size = static_cast<size_t>(bits_of_dtype(dtype) / 8);
    Tensor tensor{"m.weight_scale", dtype, {1000}, std::vector<std::byte>(1000 * size)};
    for (size_t i = 0; i < 1000; ++i)
      std::memcpy(tensor.bytes.data() + i * size, i == 937 ? &bad : &good, size);
    return test::message_of([&] { check_scales(tensor.view()); });
  };
  struct Bits {
    DType dtype;
    std::vector<uint32_t> good, bad;
  };
  const std::vector<Bits> kAll{
      {DType::kF32, {1, 0x7f7fffff}, {0, 0x80000000, 0xbf800000, 0x7f800000, 0x7fc00000}},
      {DType::kF16, {1, 0x7bff}, {0, 0x8000, 0xbc00, 0x7c00, 0x7e00}},
      {DType::kBF16, {1, 0x7f7f}, {0, 0x8000, 0xbf80, 0x7f80, 0x7fc0}},
      {DType::kF8E4M3, {1, 0x7e}, {0, 0x80, 0xb8, 0x7f, 0xff}},
      {DType::kU8, {0, 254}, {255}},
      {DType::kF8E8M0, {0, 254}, {255}}};
  for (const Bits& bits : kAll)
    for (const uint32_t good : bits.good) {
      INFO(bits.dtype << " " << good);
      CHECK(with(bits.dtype, good, good) == "no error");
      for (const uint32_t bad : bits.bad)
        CHECK(test::contains(with(bits.dtype, good, bad), "unreadable: m.weight_scale holds "));
    }
}

}  // namespace kvcal
