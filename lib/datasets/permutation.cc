#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "datasets/dataset.h"

namespace kvcal {
namespace {

using Uint128 = unsigned __int128;

/// Spreads a seed over 128 bits of pool and draws words from it.
/// Source: NumPy `SeedSequence` (numpy/random/bit_generator.pyx), after M. O'Neill's seed_seq_fe.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    uint32_t multiplier = 0x43b0d7e5;
    // A seed has at most two 32-bit words, fewer than the pool: the rest is filled with zeros.
    const std::array<uint32_t, 4> entropy{static_cast<uint32_t>(seed),
                                          static_cast<uint32_t>(seed >> 32), 0, 0};
    const auto hash = [&](uint32_t value) {
      value ^= multiplier;
      multiplier *= 0x931e8875;
      value *= multiplier;
      return value ^ (value >> 16);
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(entropy[i]);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool_[to] - 0x4973f715 * hash(pool_[from]);
        pool_[to] = mixed ^ (mixed >> 16);
      }
    }
  }

  /// The first four 64-bit words, each from two 32-bit ones, low first.
  std::array<uint64_t, 4> words() const {
    std::array<uint64_t, 4> result{};
    uint32_t multiplier = 0x8b51f9dd;
    for (size_t i = 0; i < 2 * result.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ multiplier;
      multiplier *= 0x58f38ded;
      value *= multiplier;
      value ^= value >> 16;
      result[i / 2] |= uint64_t{value} << (32 * (i % 2));
    }
    return result;
  }

 private:
  std::array<uint32_t, 4> pool_{};
};

/// PCG XSL RR 128/64. Source: NumPy `PCG64`, after M. O'Neill, "PCG: A Family of Simple Fast
/// Space-Efficient Statistically Good Algorithms for Random Number Generation".
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = SeedSequence(seed).words();
    increment_ = (wide(words[2], words[3]) << 1) | 1;
    step();
    state_ += wide(words[0], words[1]);
    step();
  }

  /// Half of a 64-bit draw, the low half first.
  uint32_t next32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const uint64_t both = next64();
    has_half_ = true;
    half_ = static_cast<uint32_t>(both >> 32);
    return static_cast<uint32_t>(both);
  }

  /// Evenly distributed in [0, most]. Source: NumPy `random_interval`, which masks a draw to the
  /// bits of most and draws again where that is too large.
  uint32_t bounded(uint32_t most) {
    if (most == 0) return 0;
    const uint32_t mask = UINT32_MAX >> std::countl_zero(most);
    uint32_t value = next32() & mask;
    while (value > most) value = next32() & mask;
    return value;
  }

 private:
  static Uint128 wide(uint64_t high, uint64_t low) { return (Uint128{high} << 64) | low; }
  void step() { state_ = state_ * wide(2549297995355413924u, 4865540595714422341u) + increment_; }
  uint64_t next64() {
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
    return std::rotr(high ^ low, static_cast<int>(high >> 58));
  }

  Uint128 state_ = 0, increment_ = 0;
  uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace

std::vector<int64_t> shuffled_indices(int64_t count, uint64_t seed) {
  constexpr int64_t kMost = int64_t{1} << 32;
  if (count < 0 || count > kMost)
    fail("a data set of ", count, " records cannot be shuffled, the limit is ", kMost);
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  Pcg64 random(seed);
  for (size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[random.bounded(static_cast<uint32_t>(i))]);
  return order;
}

}  // namespace kvcal
