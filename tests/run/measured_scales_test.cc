#include "run/measured_scales.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

std::string verdict_of(double gain, double error, int64_t num_tokens) {
  MeasuredScales measured;
  measured.num_sequences = 3;
  for (Likelihood* one : {&measured.calibrated, &measured.unit}) {
    one->num_tokens = num_tokens;
    one->kl_mean = one->kl_stderr = 0.001;
    one->reference_perplexity = one->perplexity = 20;
    one->perplexity_increase = 0;
  }
  measured.gain = {.mean = gain, .standard_error = error};
  const auto lines = measured_lines(measured);
  REQUIRE(lines.back().first == "verdict");
  for (const auto& [label, text] : lines) CHECK(label.size() < 12);
  return lines.back().second;
}

}  // namespace

TEST_CASE("measured_scales: a difference counts from two standard errors on") {
  CHECK(verdict_of(0.002, 0.0005, 1000) == "these scales are better by 0.002000 ± 0.000500");
  CHECK(verdict_of(-0.002, 0.0005, 1000) == "1.0 is better by 0.002000 ± 0.000500");
  CHECK(verdict_of(0.001, 0.0005, 1000) ==
        "no difference beyond two standard errors (0.001000 ± 0.000500)");
  CHECK(verdict_of(0.002, 0.0005, 99) == "too few tokens to tell which is better");
}
