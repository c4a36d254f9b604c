#include "eval/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace kvcal {
namespace {

constexpr size_t kWords = 624, kShift = 397;

}  // namespace

// Source: CPython, Modules/_randommodule.c `init_by_array`, after M. Matsumoto and T. Nishimura.
PythonRandom::PythonRandom(uint64_t seed) {
  std::vector<uint32_t> key{static_cast<uint32_t>(seed)};
  if (seed >> 32) key.push_back(static_cast<uint32_t>(seed >> 32));
  state_[0] = 19650218u;
  const auto mixed = [&](size_t i) {
    const uint32_t before = state_[i - 1];
    return before ^ (before >> 30);
  };
  for (size_t i = 1; i < kWords; ++i) state_[i] = 1812433253u * mixed(i) + static_cast<uint32_t>(i);
  size_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (size_t k = 0; k < kWords; ++k, advance()) {
    const size_t j = k % key.size();
    state_[i] = (state_[i] ^ (mixed(i) * 1664525u)) + key[j] + static_cast<uint32_t>(j);
  }
  for (size_t k = 0; k + 1 < kWords; ++k, advance())
    state_[i] = (state_[i] ^ (mixed(i) * 1566083941u)) - static_cast<uint32_t>(i);
  state_[0] = 0x80000000u;
  next_ = kWords;
}

void PythonRandom::refill() {
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t joined = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7fffffffu);
    state_[i] = state_[(i + kShift) % kWords] ^ (joined >> 1) ^ (joined & 1u ? 0x9908b0dfu : 0u);
  }
  next_ = 0;
}

uint32_t PythonRandom::word() {
  if (next_ == kWords) refill();
  uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// Source: CPython, Lib/random.py `_randbelow_with_getrandbits`.
int64_t PythonRandom::below(int64_t bound) {
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(bound)));
  for (;;)
    if (const int64_t drawn = word() >> (32 - bits); drawn < bound) return drawn;
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
