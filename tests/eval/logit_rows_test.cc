#include "eval/logit_rows.h"

#include <cmath>
#include <random>
#include <vector>

#include "support/catch.h"

using namespace kvcal;

namespace {

std::vector<float> random_logits(size_t count, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// In long double, as it is written down.
long double log_sum_of(const std::vector<float>& logits) {
  long double largest = logits[0], sum = 0;
  for (const float logit : logits) largest = std::max<long double>(largest, logit);
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit) - largest);
  return largest + std::log(sum);
}

}  // namespace

TEST_CASE("rows of logits are described as their sums in long double say") {
  for (const size_t count : {1u, 2u, 7u, 8u, 15u, 16u, 17u, 1023u, 1024u, 1025u, 50257u})
    for (const float spread : {0.0f, 0.01f, 3.0f, 40.0f, 3000.0f}) {
      CAPTURE(count, spread);
      const auto logits = random_logits(count, spread, static_cast<unsigned>(count));
      std::vector<float> probabilities(count);
      const LogitRow row = describe(logits, probabilities);
      CHECK(describe(logits).log_sum == row.log_sum);
      const long double expected = log_sum_of(logits);
      CHECK(std::abs(row.log_sum - static_cast<double>(expected)) <=
            1e-13 * (1.0 + std::abs(static_cast<double>(expected))));
      CHECK(row.top == std::max_element(logits.begin(), logits.end()) - logits.begin());
      for (size_t i = 0; i < count; ++i) {
        const auto p =
            static_cast<double>(std::exp(static_cast<long double>(logits[i]) - expected));
        REQUIRE(std::abs(static_cast<double>(probabilities[i]) - p) <= 3e-7 * p + 1e-38);
      }
    }
}

TEST_CASE("the first of equal tokens is the top one") {
  std::vector<float> logits(40, 1.0f);
  CHECK(argmax(logits) == 0);
  logits[33] = logits[37] = 2.0f;
  CHECK(argmax(logits) == 33);
  logits[3] = 2.0f;
  CHECK(argmax(logits) == 3);
}

TEST_CASE("KL of rows is the sum in long double, and 0 for a row with itself") {
  for (const float difference : {1e-4f, 1e-2f, 1.0f, 10.0f}) {
    CAPTURE(difference);
    const auto p = random_logits(32003, 3.0f, 1), other = random_logits(32003, difference, 2);
    std::vector<float> q = p;
    for (size_t i = 0; i < q.size(); ++i) q[i] += other[i];
    const long double p_sum = log_sum_of(p), q_sum = log_sum_of(q);
    long double expected = 0;
    for (size_t i = 0; i < p.size(); ++i)
      expected += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
    CHECK(std::abs(kl_divergence(p, q) - static_cast<double>(expected)) <=
          1e-6 * static_cast<double>(expected) + 1e-13);
    CHECK(kl_divergence(p, p) == 0.0);
  }
}
