#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace kvcal {

/// Python's random.Random: MT19937, seeded by an integer, and what sample makes of it. Draws are
/// those of CPython 3.9 and later.
class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  /// random.sample(range(population), count). Throws Error where count is negative or more than
  /// population, or population 2^32 or more.
  std::vector<int64_t> sample(int64_t population, int64_t count);

 private:
  /// Evenly from [0, bound), 0 < bound < 2^32.
  int64_t below(int64_t bound);

  std::mt19937 random_;
};

}  // namespace kvcal
