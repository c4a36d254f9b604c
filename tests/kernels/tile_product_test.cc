// Products by instructions for bfloat16, where this processor has them.
#include "kernels/cpu/tile_product.h"

#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

using cpu::TileInstructions;
using cpu::TileProduct;

std::vector<TileInstructions> available() {
  const TileInstructions best = cpu::tile_instructions();
  if (best == TileInstructions::kNone) return {};
  if (best == TileInstructions::kAvx512Bf16) return {best};
  return {best, TileInstructions::kAvx512Bf16};  // a processor with the one has the other
}

struct Case {
  int64_t rows = 16, columns = 32, steps = 32;
  bool has_start = false, accumulate = false, has_rest = false;
  bool narrow_start = false;  ///< one a row instead of one a column
  int64_t extra = 0;          ///< of every stride
};

std::vector<BF16> rounded(const std::vector<float>& values) {
  std::vector<BF16> result;
  for (const float value : values) result.push_back(to_bf16(value));
  return result;
}

void check(TileInstructions instructions, const Case& c) {
  const int64_t a_stride = c.steps + 2 * c.extra, b_stride = c.columns + c.extra;
  const int64_t c_stride = c.columns + c.extra;
  const auto a = rounded(test::normal(c.rows * a_stride, 1));
  const auto rest = rounded(test::normal(c.rows * a_stride, 5, 0.01f));
  const auto b = rounded(test::normal(c.steps * c.columns, 2));
  auto start = test::normal(c.narrow_start ? c.rows * 16 : c.columns, 3);
  for (size_t i = 0; c.narrow_start && i < start.size(); ++i) start[i] = start[i / 16 * 16];
  const auto before = test::normal(c.rows * c_stride, 4);
  std::vector<uint32_t> pairs(static_cast<size_t>(c.steps / 2 * b_stride), 0xffffffffu);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  for (int64_t k = 0; k < c.steps; k += 2)
    for (int64_t n = 0; n < c.columns; ++n)
      pairs[at(k / 2 * b_stride + n)] =
          b[at(k * c.columns + n)].bits | static_cast<uint32_t>(b[at((k + 1) * c.columns + n)].bits)
                                              << 16;
  std::vector<float> actual = before, expected = before;
  for (int64_t m = 0; m < c.rows; ++m)
    for (int64_t n = 0; n < c.columns; ++n) {
      double sum = c.accumulate  ? before[at(m * c_stride + n)]
                   : c.has_start ? start[at(c.narrow_start ? m * 16 : n)]
                                 : 0.0f;
      for (int64_t k = 0; k < c.steps; ++k) {
        double x = to_float(a[at(m * a_stride + k)]);
        if (c.has_rest) x += to_float(rest[at(m * a_stride + k)]);
        sum += x * static_cast<double>(to_float(b[at(k * c.columns + n)]));
      }
      expected[at(m * c_stride + n)] = static_cast<float>(sum);
    }
  const cpu::TileSession tiles(instructions);
  tiles.multiply({.a = a.data(),
                  .a_stride = a_stride,
                  .a_rest = c.has_rest ? rest.data() : nullptr,
                  .b = pairs.data(),
                  .b_stride = b_stride,
                  .c = actual.data(),
                  .c_stride = c_stride,
                  .rows = c.rows,
                  .columns = c.columns,
                  .steps = c.steps,
                  .start = c.has_start ? start.data() : nullptr,
                  .start_stride = c.narrow_start ? 16 : 0,
                  .accumulate = c.accumulate});
  INFO(name_of(instructions) << ": " << c.rows << " x " << c.columns << " x " << c.steps);
  CHECK(test::agree_as_sums(actual, expected, 1e-12));
}

TEST_CASE("tile products: agree with sums in float64, and touch nothing else") {
  for (const TileInstructions instructions : available())
    for (const Case& c : {Case{}, Case{.rows = 48, .columns = 96, .steps = 160},
                          Case{.rows = 16, .columns = 64, .steps = 64, .has_start = true},
                          Case{.rows = 80, .columns = 32, .steps = 96, .accumulate = true},
                          Case{.rows = 48, .columns = 64, .has_start = true, .narrow_start = true},
                          Case{.rows = 48, .columns = 64, .steps = 96, .has_rest = true},
                          Case{.rows = 32, .steps = 64, .has_start = true, .extra = 3},
                          Case{.rows = 64, .columns = 64, .accumulate = true, .extra = 16}})
      check(instructions, c);
}

TEST_CASE("tile products: instructions have names") {
  CHECK(name_of(TileInstructions::kNone).empty());
  CHECK(name_of(TileInstructions::kAmxBf16) == "amx_bf16");
  CHECK(name_of(TileInstructions::kAvx512Bf16) == "avx512_bf16");
}

}  // namespace
}  // namespace kvcal
