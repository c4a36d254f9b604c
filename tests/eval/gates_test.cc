#include "eval/gates.h"

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;

namespace {

Likelihood found(double kl, double increase, double top1) {
  Likelihood result;
  result.num_tokens = 100;
  result.kl_mean = kl;
  result.perplexity_increase = increase;
  result.top1_agreement = top1;
  return result;
}

}  // namespace

TEST_CASE("gates: a limit that is kept, or just met, is no miss") {
  const Gates gates{.max_kl = 0.01, .max_perplexity_increase = 0.005, .min_top1 = 0.99};
  CHECK(missed_gates(found(0.0, -0.1, 1.0), gates).empty());
  CHECK(missed_gates(found(0.01, 0.005, 0.99), gates).empty());
  CHECK(missed_gates(found(9.0, 9.0, 0.0), {}).empty());
  CHECK_FALSE(Gates{}.has_any());
  CHECK(gates.has_any());
}

TEST_CASE("gates: each that is missed says by how much") {
  const Gates gates{.max_kl = 0.01, .max_perplexity_increase = 0.005, .min_top1 = 0.99};
  const auto missed = missed_gates(found(0.0125, 0.0075, 0.97), gates);
  REQUIRE(missed.size() == 3);
  CHECK(missed[0] == "--max-kl: the mean KL is 0.0125, the limit is 0.01: missed by 0.0025");
  CHECK(missed[1] ==
        "--max-perplexity-increase: the increase is 0.75 %, the limit is 0.5 %: missed by 0.25 %");
  CHECK(missed[2] ==
        "--min-top1: the part of same top tokens is 97 %, the limit is 99 %: missed by 2 %");
  CHECK(missed_gates(found(0.0125, 0.0, 1.0), gates).size() == 1);
}

TEST_CASE("gates: what is no number keeps no limit") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const Gates gates{.max_kl = 1.0, .max_perplexity_increase = 1.0, .min_top1 = 0.0};
  CHECK(missed_gates(found(kNan, kNan, kNan), gates).size() == 3);
}
