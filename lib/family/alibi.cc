#include "family/alibi.h"

#include <bit>
#include <cmath>

namespace kvcal {

std::vector<float> alibi_slopes(int64_t heads) {
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  const auto add = [&](int64_t numerator, int64_t denominator) {
    const double exponent = 8.0 * static_cast<double>(numerator) / static_cast<double>(denominator);
    slopes.push_back(static_cast<float>(std::exp2(-exponent)));
  };
  for (int64_t i = 1; i <= below; ++i) add(i, below);
  for (int64_t i = 1; i <= heads - below; ++i) add(2 * i - 1, 2 * below);
  return slopes;
}

}  // namespace kvcal
