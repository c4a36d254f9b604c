// Softmax weights in fixed point, where this processor has AMX.
#include "kernels/cpu/amx_rows.h"

#include <cmath>

#include "kernels/cpu/tile_product.h"
#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

using namespace cpu;

struct alignas(64) Operands {
  BF16 q[2 * 2 * 16 * 32] = {};
  uint32_t k[2 * 16 * 16] = {};
  float starts[kAmxRows * 16] = {}, scores[kAmxRows * kAmxKeys] = {};
  float before[kAmxRows * 16] = {}, sums[kAmxRows * 16] = {};
  BF16 weights[kAmxRows * kAmxKeys] = {};

  BF16& q_of(int64_t row) { return q[row / 16 * 1024 + row % 16 * 32]; }
  float weight(int64_t row, int64_t key) const {
    return to_float(weights[row / 16 * 512 + row % 16 * 32 + key]);
  }
  /// Scores of the first dimension alone, then their weights.
  void run(const uint32_t* seen = nullptr) {
    const TileSession tiles(tile_instructions());
    score_and_weigh({.steps = 1, .q = q, .k = k, .starts = starts, .scores = scores}, nullptr);
    weigh({.scores = scores,
           .seen = seen,
           .before = before,
           .sums = sums,
           .weights = weights,
           .half = 512});
  }
};

TEST_CASE("AMX weights: powers of two of every size, within 0.54 percent of a common factor") {
  if (!weighs_between_tiles()) return;
  double logs = 0.0;
  std::vector<double> ratios;
  for (int64_t step = 0; step < 400; ++step) {
    const auto operands = std::make_unique<Operands>();
    std::vector<double> exponents;
    for (int64_t row = 0; row < kAmxRows; ++row) {
      const auto score = static_cast<float>(-125.0 + 0.0143 * static_cast<double>(step * 32 + row));
      exponents.push_back(score);
      std::fill_n(operands->starts + row * 16, 16, kAmxBias + kAmxUnit * score);
    }
    operands->run();
    for (int64_t row = 0; row < kAmxRows; ++row) {
      const double ratio = static_cast<double>(operands->weight(row, row)) /
                           std::exp2(exponents[static_cast<size_t>(row)]);
      ratios.push_back(ratio);
      logs += std::log(ratio);
    }
  }
  const double factor = std::exp(logs / static_cast<double>(ratios.size()));
  double largest = 0.0, squares = 0.0;
  for (const double ratio : ratios) {
    largest = std::max(largest, std::abs(ratio / factor - 1.0));
    squares += std::pow(ratio / factor - 1.0, 2.0);
  }
  CHECK(largest < 0.0056);
  CHECK(std::sqrt(squares / static_cast<double>(ratios.size())) < 0.0019);
}

TEST_CASE("AMX weights: keys stay in order, hidden ones weigh nothing, sums are those of weights") {
  if (!weighs_between_tiles()) return;
  const auto operands = std::make_unique<Operands>();
  std::vector<uint32_t> seen;
  for (int64_t row = 0; row < kAmxRows; ++row) {
    operands->q_of(row) = to_bf16(1.0f);
    std::fill_n(operands->starts + row * 16, 16, kAmxBias);
    seen.push_back(0x9e3779b9u * static_cast<uint32_t>(row + 1));
    operands->before[row * 16] = 1.0f;
  }
  for (int64_t key = 0; key < kAmxKeys; ++key) {
    const int64_t column = amx_column(key);
    operands->k[column / 16 * 256 + column % 16] =
        to_bf16(kAmxUnit * static_cast<float>(key - 20)).bits;
  }
  operands->run(seen.data());
  const float one = 1.0f;
  for (int64_t row = 0; row < kAmxRows; ++row) {
    double sum = one;
    for (int64_t key = 0; key < kAmxKeys; ++key) {
      const bool is_seen = (seen[static_cast<size_t>(row)] >> key & 1) != 0;
      const float weight = operands->weight(row, key);
      CHECK(weight == (is_seen ? std::exp2(static_cast<float>(key - 20)) : 0.0f));
      sum += static_cast<double>(weight);
    }
    CHECK(test::agree_as_sums(std::vector<float>{sum_of_parts(operands->sums + row * 16)},
                              std::vector<float>{static_cast<float>(sum)}, 1e-12));
  }
}

TEST_CASE("AMX weights: large scores and NaN show in the ranges of sums, and rows can be redone") {
  if (!weighs_between_tiles()) return;
  const auto operands = std::make_unique<Operands>();
  for (int64_t row = 0; row < kAmxRows; ++row)
    std::fill_n(operands->starts + row * 16, 16, kAmxBias - 3 * kAmxUnit);
  const auto set_start = [&](int64_t row, float score) {
    std::fill_n(operands->starts + row * 16, 16, kAmxBias + kAmxUnit * score);
  };
  set_start(3, 61.0f);
  set_start(5, 1e9f);
  set_start(7, std::numeric_limits<float>::quiet_NaN());
  set_start(9, -100.0f);
  operands->run();
  const SumRanges ranges = ranges_of(operands->sums);
  CHECK(ranges.far == (1u << 3 | 1u << 5 | 1u << 7));
  CHECK(ranges.seen == ~(1u << 9));
  const uint32_t all = ~uint32_t{0};
  const auto row = [&](int64_t i) { return AmxRow{i, 1, operands->scores, &all}; };
  CHECK(largest_of(row(3)) == kAmxBias + 61 * kAmxUnit);
  CHECK(std::isnan(largest_of(row(7))));
  const uint32_t none = 0;
  CHECK(std::isinf(largest_of({3, 1, operands->scores, &none})));
  weigh_row(row(3), 61 * kAmxUnit,
            {.before = operands->before,
             .sums = operands->sums,
             .weights = operands->weights,
             .half = 512});
  CHECK(operands->weight(3, 31) == 1.0f);
  CHECK(sum_of_parts(operands->sums + 3 * 16) == 32.0f);
}

}  // namespace
}  // namespace kvcal
