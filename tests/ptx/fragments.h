#pragma once

#include "numbers.h"
#include "warp.h"

// How lanes of a warp hold matrices. Source: PTX ISA, "Matrix Fragments for mma.m16n8k16" and
// "Register Fragments" of wgmma.mma_async, which are the same for 16 rows.
namespace kvcal::ptx {

/// Formats of 16-bit factors.
struct Half {
  static float number(uint16_t bits) { return float_of_half(bits); }
};
struct BFloat {
  static float number(uint16_t bits) { return float_of_bfloat(bits); }
};

constexpr int kRows = 16, kDepth = 16;

/// The first factor, 16 × 16, from four words a lane.
struct FactorA {
  double at[kRows][kDepth];
};
template <class Format, class Word>
FactorA factor_a(const Word& word) {
  FactorA factor;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int w = 0; w < 4; ++w) {
      const int row = lane / 4 + w % 2 * 8, column = lane % 4 * 2 + w / 2 * 8;
      const uint32_t pair = word(w, lane);
      factor.at[row][column] = Format::number(static_cast<uint16_t>(pair));
      factor.at[row][column + 1] = Format::number(static_cast<uint16_t>(pair >> 16));
    }
  return factor;
}

/// sums += a · b, for 16 rows and any number of columns, in double: the products are exact, so only
/// the chip's own rounding of sums is not modelled.
template <int kColumns>
void add_product(double (&sums)[kRows][kColumns], const FactorA& a,
                 const double (&b)[kDepth][kColumns]) {
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < kDepth; ++k)
      for (int column = 0; column < kColumns; ++column)
        sums[row][column] += a.at[row][k] * b[k][column];
}

/// Row and column of a lane's sum: four to eight columns.
constexpr int sum_row(int lane, int i) {
  return lane / 4 + i % 4 / 2 * 8;
}
constexpr int sum_column(int lane, int i) {
  return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

}  // namespace kvcal::ptx
