#pragma once

#include <cstdint>

#include "quant/half.h"

namespace kvcal::cpu {

/// Weights in the form that products of pairs of bfloat16 read: for each group of columns, output
/// features, [pairs of input features, columns].
struct PairColumns {
  int64_t columns = 0;      ///< in a group, a multiple of 4
  uint32_t* out = nullptr;  ///< the group's first pair of the first column to write
};

/// Writes rows of a weight [rows, 2 * pairs] as columns of one group. The columns up to the next
/// multiple of four repeat the last row.
void pack_pair_columns(const BF16* weight, int64_t rows, int64_t pairs, const PairColumns& to);

}  // namespace kvcal::cpu
