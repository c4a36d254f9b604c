#include "eval/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace kvcal {
namespace {

/// Fills the state of MT19937 from an integer. Source: CPython, Modules/_randommodule.c
/// `init_by_array`, after M. Matsumoto and T. Nishimura.
class PythonSeed {
 public:
  using result_type = uint32_t;
  explicit PythonSeed(uint64_t seed) : key_{static_cast<uint32_t>(seed)} {
    if (seed >> 32) key_.push_back(static_cast<uint32_t>(seed >> 32));
  }
  template <class Words>
  void generate(Words begin, Words end) const {
    const auto words = static_cast<size_t>(end - begin);
    const auto mixed = [&](size_t i) { return begin[i - 1] ^ (begin[i - 1] >> 30); };
    begin[0] = 19650218u;
    for (size_t i = 1; i < words; ++i) begin[i] = 1812433253u * mixed(i) + static_cast<uint32_t>(i);
    size_t i = 1;
    const auto advance = [&] {
      if (++i < words) return;
      begin[0] = begin[words - 1];
      i = 1;
    };
    for (size_t k = 0; k < words; ++k, advance()) {
      const size_t j = k % key_.size();
      begin[i] = (begin[i] ^ (mixed(i) * 1664525u)) + key_[j] + static_cast<uint32_t>(j);
    }
    for (size_t k = 0; k + 1 < words; ++k, advance())
      begin[i] = (begin[i] ^ (mixed(i) * 1566083941u)) - static_cast<uint32_t>(i);
    begin[0] = 0x80000000u;
  }

 private:
  std::vector<uint32_t> key_;
};

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) {
  PythonSeed words(seed);
  random_.seed(words);
}

// Source: CPython, Lib/random.py `_randbelow_with_getrandbits`.
int64_t PythonRandom::below(int64_t bound) {
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(bound)));
  for (;;)
    if (const auto drawn = static_cast<int64_t>(random_() >> (32 - bits)); drawn < bound)
      return drawn;
}

// Source: CPython, Lib/random.py `sample`.
std::vector<int64_t> PythonRandom::sample(int64_t population, int64_t count) {
  if (count < 0 || count > population || population > UINT32_MAX)
    fail(count, " of ", population, " cannot be drawn");
  std::vector<int64_t> drawn;
  int64_t pool_limit = 21;  // a list of so many is smaller than a set
  if (count > 5) {
    int64_t power = 1;
    while (power < 3 * count) power *= 4;
    pool_limit += power;
  }
  if (population <= pool_limit) {
    std::vector<int64_t> pool(static_cast<size_t>(population));
    std::iota(pool.begin(), pool.end(), 0);
    while (std::ssize(drawn) < count) {
      const auto place = static_cast<size_t>(below(std::ssize(pool)));
      drawn.push_back(std::exchange(pool[place], pool.back()));
      pool.pop_back();
    }
    return drawn;
  }
  while (std::ssize(drawn) < count) {
    int64_t index = below(population);
    while (std::ranges::find(drawn, index) != drawn.end()) index = below(population);
    drawn.push_back(index);
  }
  return drawn;
}

}  // namespace kvcal
