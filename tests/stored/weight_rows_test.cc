#include "stored/weight_rows.h"

#include <cstring>

#include "quant/fp8.h"
#include "quant/half.h"
#include "support/catch.h"

namespace kvcal {
namespace {

template <class Value>
TensorView view_of(DType dtype, Shape shape, const std::vector<Value>& values) {
  return {.name = "tensor",
          .dtype = dtype,
          .shape = std::move(shape),
          .bytes = std::as_bytes(std::span(values))};
}

}  // namespace

TEST_CASE("weight_rows: transposing swaps the indices of every element, of 2 and of 4 bytes") {
  constexpr int64_t kIn = 37, kOut = 70;  // no multiples of a tile
  std::vector<uint16_t> halves(kIn * kOut);
  std::vector<float> floats(kIn * kOut);
  for (size_t i = 0; i < halves.size(); ++i)
    floats[i] = static_cast<float>(halves[i] = static_cast<uint16_t>(i));
  const auto half_rows = transposed(view_of(DType::kBF16, Shape{kIn, kOut}, halves));
  const auto float_rows = transposed(view_of(DType::kF32, Shape{kIn, kOut}, floats));
  REQUIRE(half_rows.parts[0].shape == Shape{kOut, kIn});
  REQUIRE(float_rows.parts[0].shape == Shape{kOut, kIn});
  for (size_t column = 0; column < kOut; ++column)
    for (size_t row = 0; row < kIn; ++row) {
      uint16_t half = 0;
      float value = 0.0f;
      const size_t at = column * kIn + row;
      std::memcpy(&half, half_rows.parts[0].bytes.data() + 2 * at, 2);
      std::memcpy(&value, float_rows.parts[0].bytes.data() + 4 * at, 4);
      REQUIRE(half == row * kOut + column);
      REQUIRE(value == static_cast<float>(half));
    }
}

// Qwen3's FP8 checkpoints have BF16 scales, DeepSeek-V3's F32.
TEST_CASE("weight_rows: a block's scale may be F32 or BF16") {
  constexpr size_t kRows = 5, kWidth = 7, kHeight = 2, kStep = 3;  // 3 x 3 blocks
  std::vector<uint8_t> codes(kRows * kWidth);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(3 * i);
  std::vector<float> scales;
  std::vector<uint16_t> half_scales;
  for (int i = 0; i < 9; ++i) {
    scales.push_back(0.25f + static_cast<float>(i) / 8.0f);  // exact in BF16
    uint32_t bits = 0;
    std::memcpy(&bits, &scales.back(), 4);
    half_scales.push_back(static_cast<uint16_t>(bits >> 16));
  }
  const TensorView matrix = view_of(DType::kF8E4M3, Shape{kRows, kWidth}, codes);
  for (const TensorView& scale : {view_of(DType::kF32, Shape{3, 3}, scales),
                                  view_of(DType::kBF16, Shape{3, 3}, half_scales)}) {
    std::vector<float> values(codes.size());
    BlockScaledRows(matrix, scale, kHeight, kStep).decode(0, kRows, values.data());
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(values[i] == fp8::decode(codes[i], fp8::Format::kE4m3Fn) *
                             scales[i / kWidth / kHeight * 3 + i % kWidth / kStep]);
  }
}

}  // namespace kvcal
