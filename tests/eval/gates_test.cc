#include "eval/gates.h"

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;

namespace {

/// The lines of those that are missed.
std::vector<std::string> missed_gates(const Likelihood& result, const Gates& gates) {
  std::vector<std::string> lines;
  for (const Gate& gate : judged_gates(result, gates))
    if (!gate.passed) lines.push_back(missed_text(gate));
  return lines;
}

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

TEST_CASE("gates: JSON holds each with its limit, value and standard error, passed or not") {
  Likelihood result = found(0.0125, 0.0, 0.75);
  result.kl_stderr = 0.001;
  const Json json = to_json(judged_gates(result, {.max_kl = 0.01, .min_top1 = 0.5}));
  REQUIRE(json.size() == 2);
  CHECK(json[0] == Json{{"gate", "--max-kl"},
                        {"limit", 0.01},
                        {"value", 0.0125},
                        {"standard_error", 0.001},
                        {"passed", false}});
  CHECK(json[1].at("passed") == true);
  // Of 100 tokens, 75 of which agree.
  CHECK(json[1].at("standard_error").get<double>() ==
        Approx(std::sqrt(0.75 * 0.25 / 100)).epsilon(1e-12));
}
