#include "family/ngram_hashes.h"

#include <algorithm>
#include <limits>

namespace kvcal {
namespace {

/// SplitMix64's step and finalizer.
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
uint64_t split_mix(uint64_t x) {
  x += kGolden;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool is_prime(int64_t value) {
  if (value < 4) return value > 1;
  if (value % 2 == 0) return false;
  for (int64_t divisor = 3; divisor * divisor <= value; divisor += 2)
    if (value % divisor == 0) return false;
  return true;
}

int64_t prime_after(int64_t value) {
  do ++value;
  while (!is_prime(value));
  return value;
}

}  // namespace

NgramHashes ngram_hashes(const NgramConfig& config, int64_t vocab_size, int64_t index) {
  // No product of a token and a factor exceeds 63 bits.
  const int64_t most = std::numeric_limits<int64_t>::max() / std::max<int64_t>(vocab_size, 1);
  const auto half = static_cast<uint64_t>(std::max<int64_t>(1, most / 2));
  const uint64_t seed = config.seed + 10007 * static_cast<uint64_t>(index);
  NgramHashes hashes;
  for (int64_t i = 1; i <= config.longest; ++i) {
    const uint64_t mixed = split_mix(seed + kGolden * static_cast<uint64_t>(i));
    hashes.factors.push_back(static_cast<int64_t>(2 * (mixed % half) + 1));
  }
  int64_t prime = config.least_rows - 1, rows = 0;
  for (int64_t i = 0; i < index * config.all_hashes(); ++i) prime = prime_after(prime);
  for (int64_t i = 0; i < config.all_hashes(); ++i) {
    prime = prime_after(prime);
    hashes.sizes.push_back(prime);
    hashes.offsets.push_back(rows);
    rows += prime;
  }
  return hashes;
}

void append_ngram_rows(const NgramConfig& config, const NgramHashes& hashes,
                       std::span<const int32_t> ids, std::vector<int64_t>& rows) {
  const auto product = [&](int32_t id, int64_t place) {
    return static_cast<uint64_t>(id) *
           static_cast<uint64_t>(hashes.factors[static_cast<size_t>(place)]);
  };
  uint64_t mixed = product(ids.back(), 0);
  bool is_cut = false;  // behind a separator
  for (int64_t back = 1; back < config.longest; ++back) {
    const int32_t id = ids[ids.size() - 1 - static_cast<size_t>(back)];
    is_cut = is_cut || id == config.separator;
    mixed ^= product(is_cut ? static_cast<int32_t>(config.separator) : id, back);
    for (int64_t i = (back - 1) * config.hashes; i < back * config.hashes; ++i) {
      const int64_t size = hashes.sizes[static_cast<size_t>(i)];
      const int64_t rest = static_cast<int64_t>(mixed) % size;
      rows.push_back(hashes.offsets[static_cast<size_t>(i)] + (rest < 0 ? rest + size : rest));
    }
  }
}

}  // namespace kvcal
