#include "quant/stacked_slice.h"

#include <cstring>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

/// Element (expert, output, input) has the value 10000 expert + 100 output + input.
Tensor stacked(int64_t experts, int64_t outputs, int64_t inputs, bool is_transposed, DType dtype) {
  Tensor tensor{"stack", dtype, {experts, outputs, inputs}, {}};
  if (is_transposed) tensor.shape = {experts, inputs, outputs};
  for (int64_t expert = 0; expert < experts; ++expert)
    for (int64_t row = 0; row < tensor.shape[1]; ++row)
      for (int64_t column = 0; column < tensor.shape[2]; ++column) {
        const int64_t output = is_transposed ? column : row, input = is_transposed ? row : column;
        const auto value = static_cast<uint32_t>(10000 * expert + 100 * output + input);
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        tensor.bytes.insert(tensor.bytes.end(), bytes, bytes + bits_of_dtype(dtype) / 8);
      }
  return tensor;
}

uint32_t value_at(const TensorView& view, int64_t index) {
  const size_t size = static_cast<size_t>(bits_of_dtype(view.dtype) / 8);
  uint32_t value = 0;
  std::memcpy(&value, view.bytes.data() + static_cast<size_t>(index) * size, size);
  return value;
}

}  // namespace

TEST_CASE("slices of stacked experts: every layout gives the part's outputs, row by row") {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const bool is_transposed : {false, true})
      for (const bool is_interleaved : {false, true})
        for (const int64_t parts : {1, 2, 3}) {
          const int64_t experts = 3, rows = 35, inputs = 41;
          const Tensor tensor = stacked(experts, rows * parts, inputs, is_transposed, dtype);
          for (int64_t part = 0; part < parts; ++part) {
            const StackedSlice slice{.tensor = "stack",
                                     .index = 2,
                                     .part = part,
                                     .parts = parts,
                                     .is_transposed = is_transposed,
                                     .is_interleaved = is_interleaved};
            INFO(dtype << ", transposed " << is_transposed << ", interleaved " << is_interleaved
                       << ", part " << part << " of " << parts);
            const SliceValues values = values_of(tensor.view(), slice);
            REQUIRE(values.view.shape == Shape({rows, inputs}));
            CHECK(values.owned.empty() == slice.is_contiguous());
            size_t wrong = 0;
            for (int64_t row = 0; row < rows; ++row)
              for (int64_t input = 0; input < inputs; ++input) {
                const int64_t output = is_interleaved ? row * parts + part : part * rows + row;
                auto wanted = static_cast<uint32_t>(20000 + 100 * output + input);
                if (dtype == DType::kBF16) wanted &= 0xffffu;
                wrong += value_at(values.view, row * inputs + input) != wanted;
              }
            CHECK(wrong == 0);
          }
        }
}

TEST_CASE("slices of stacked experts: biases, and tensors that do not hold the slice") {
  Tensor bias = stacked(2, 6, 1, false, DType::kF32);
  bias.shape = {2, 6};
  StackedSlice slice{.tensor = "stack", .index = 1, .part = 1, .parts = 2, .is_interleaved = true};
  const SliceValues values = values_of(bias.view(), slice);
  REQUIRE(values.view.shape == Shape{3});
  for (int64_t row = 0; row < 3; ++row)
    CHECK(value_at(values.view, row) == static_cast<uint32_t>(10000 + 100 * (2 * row + 1)));
  const auto refused = [&](const Shape& shape) {
    return test::message_of([&] { shape_of(slice, shape); });
  };
  CHECK(refused({1, 6}) == "stack is [1, 6], expected 2 parts of more than 1 expert");
  CHECK(refused({2, 5}) == "stack is [2, 5], expected 2 parts of more than 1 expert");
  CHECK(refused({6}) == "stack is [6], expected 2 parts of more than 1 expert");
  slice.is_transposed = true;
  CHECK(refused({2, 6}) == "stack is [2, 6], expected 2 parts of more than 1 expert");
}

TEST_CASE("slices of stacked experts: a tensor without values has slices without values") {
  const Tensor whole = stacked(2, 4, 3, false, DType::kF32);
  TensorView hollow = whole.view();
  hollow.bytes = {static_cast<const std::byte*>(nullptr), hollow.bytes.size()};
  const TensorView expert = expert_of(hollow, 1);
  CHECK(expert.is_hollow());
  CHECK(expert.bytes.size() == whole.bytes.size() / 2);
  const StackedSlice half{.tensor = "stack", .index = 1, .part = 1, .parts = 2};
  CHECK(values_of(hollow, half).view.is_hollow());
  StackedSlice gathered = half;
  gathered.is_interleaved = true;
  CHECK_THROWS_AS(values_of(hollow, gathered), HollowTensor);
}
