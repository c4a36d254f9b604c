#include "eval/logit_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "core/error.h"

namespace kvcal {
namespace {

// Loops over a vocabulary are compiled for several instruction sets. Without contraction and with
// the lanes fixed here, all give the same bytes.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define KVCAL_WIDE_LOOP __attribute__((target_clones("default", "avx2", "arch=skylake-avx512")))
#else
#define KVCAL_WIDE_LOOP
#endif

constexpr size_t kLanes = 8;
/// Logits whose exponentials lie in the nearest cache together.
constexpr size_t kBlock = 1024;

/// e^x for x from -708 to 0, to 1e-14 of it: the Taylor series of what is left of x behind a
/// multiple n of ln 2, times 2^n. Without branches, so that loops of it are vectorized.
inline double exp_of_negative(double x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 6.93147180369123816490e-01,
                   kLn2Low = 1.90821492927058770002e-10;
  constexpr double kToInteger = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
  const double shifted = x * kLog2E + kToInteger;
  const double n = shifted - kToInteger;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  constexpr double kInverse[] = {1.0 / 479001600,
                                 1.0 / 39916800,
                                 1.0 / 3628800,
                                 1.0 / 362880,
                                 1.0 / 40320,
                                 1.0 / 5040,
                                 1.0 / 720,
                                 1.0 / 120,
                                 1.0 / 24,
                                 1.0 / 6,
                                 1.0 / 2,
                                 1.0,
                                 1.0};
  double sum = kInverse[0];
#pragma GCC unroll 12
  for (size_t i = 1; i < std::size(kInverse); ++i) sum = sum * r + kInverse[i];
  const auto exponent = (std::bit_cast<uint64_t>(shifted) << 52) + (uint64_t{1023} << 52);
  return sum * std::bit_cast<double>(exponent);
}

/// e to (logit - above), which is 0 or less, of each.
KVCAL_WIDE_LOOP void exponentiate(const float* logits, size_t count, double above, double* out) {
  for (size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(logits[i]) - above;
    out[i] = exp_of_negative(x < -700.0 ? -700.0 : x);
  }
}

/// Sums side by side, so that the order of additions is the same for every width.
template <class Term>
inline double sum_of(size_t count, const Term& term) {
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
  for (; i < count; ++i) sums[i % kLanes] += term(i);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

KVCAL_WIDE_LOOP double total(const double* values, size_t count) {
  return sum_of(count, [values](size_t i) { return values[i]; });
}

KVCAL_WIDE_LOOP double divergence(const float* p, double p_log_sum, const float* probabilities,
                                  const float* q, double q_log_sum, size_t count) {
  return sum_of(count, [=](size_t i) {
    const double log_p = static_cast<double>(p[i]) - p_log_sum;
    const double log_q = static_cast<double>(q[i]) - q_log_sum;
    return static_cast<double>(probabilities[i]) * (log_p - log_q);
  });
}

KVCAL_WIDE_LOOP float largest_of(const float* values, size_t count) {
  float lanes[2 * kLanes];
  std::fill(std::begin(lanes), std::end(lanes), values[0]);
  size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes)
    for (size_t lane = 0; lane < 2 * kLanes; ++lane)
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  for (; i < count; ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

/// visit(first, exponentials relative to the largest) in blocks.
template <class Visit>
LogitRow describe_in_blocks(std::span<const float> logits, const Visit& visit) {
  LogitRow row{.top = argmax(logits)};
  const auto largest = static_cast<double>(logits[static_cast<size_t>(row.top)]);
  std::array<double, kBlock> exponentials;
  double sum = 0.0;
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const size_t count = std::min(kBlock, logits.size() - first);
    exponentiate(logits.data() + first, count, largest, exponentials.data());
    sum += total(exponentials.data(), count);
    visit(first, std::span(exponentials).first(count));
  }
  row.log_sum = largest + std::log(sum);
  return row;
}

}  // namespace

TokenId argmax(std::span<const float> logits) {
  const float largest = largest_of(logits.data(), logits.size());
  const auto found = std::ranges::find(logits, largest);
  KVCAL_CHECK(found != logits.end());  // none is equal to NaN
  return static_cast<TokenId>(found - logits.begin());
}

LogitRow describe(std::span<const float> logits) {
  return describe_in_blocks(logits, [](size_t, std::span<const double>) {});
}

LogitRow describe(std::span<const float> logits, std::span<float> probabilities) {
  KVCAL_CHECK(logits.size() == probabilities.size());
  const LogitRow row =
      describe_in_blocks(logits, [&](size_t first, std::span<const double> exponentials) {
        for (size_t i = 0; i < exponentials.size(); ++i)
          probabilities[first + i] = static_cast<float>(exponentials[i]);
      });
  const auto part = static_cast<float>(
      std::exp(static_cast<double>(logits[static_cast<size_t>(row.top)]) - row.log_sum));
  for (float& probability : probabilities) probability *= part;
  return row;
}

double kl_divergence(std::span<const float> p_logits, const LogitRow& p,
                     std::span<const float> probabilities, std::span<const float> q_logits,
                     const LogitRow& q) {
  KVCAL_CHECK(p_logits.size() == q_logits.size() && p_logits.size() == probabilities.size());
  const double sum = divergence(p_logits.data(), p.log_sum, probabilities.data(), q_logits.data(),
                                q.log_sum, p_logits.size());
  // Rounding alone can take a zero below it.
  return std::max(sum, 0.0);
}

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  std::vector<float> probabilities(p_logits.size());
  const LogitRow p = describe(p_logits, probabilities);
  return kl_divergence(p_logits, p, probabilities, q_logits, describe(q_logits));
}

}  // namespace kvcal
