#include "run/scored_scales.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

ScoredScales measured_of(double gain, double error, int64_t num_tokens) {
  ScoredScales measured;
  measured.num_sequences = 3;
  for (Likelihood* one : {&measured.calibrated, &measured.unit}) {
    one->num_tokens = num_tokens;
    one->kl_mean = one->kl_stderr = 0.001;
    one->top1_agreement = 0.99;
    one->reference_perplexity = one->perplexity = 20;
    one->perplexity_increase = 0;
  }
  measured.gain = {.mean = gain, .standard_error = error};
  return measured;
}

std::string difference_of(double gain, double error, int64_t num_tokens) {
  const auto lines = scored_lines(measured_of(gain, error, num_tokens));
  for (const auto& [label, text] : lines) CHECK(label.size() < 12);
  REQUIRE(lines.at(2).first == "difference");
  return lines.at(2).second;
}

}  // namespace

TEST_CASE("measured_scales: a difference counts from two standard errors on") {
  CHECK(difference_of(0.002, 0.0005, 1000) == "these scales are better by 0.002000 ± 0.000500");
  CHECK(difference_of(-0.002, 0.0005, 1000) == "1.0 is better by 0.002000 ± 0.000500");
  CHECK(difference_of(0.001, 0.0005, 1000) ==
        "no difference beyond two standard errors (0.001000 ± 0.000500)");
  CHECK(difference_of(0.002, 0.0005, 99) == "too few tokens to tell which is better");
}

TEST_CASE("measured_scales: the verdicts come first, each with its own numbers") {
  ScoredScales measured = measured_of(0, 0.001, 1000);
  measured.calibrated.kl_mean = 0.37;
  measured.unit_clipped = 0.02;
  const auto lines = scored_lines(measured);
  CHECK(
      lines.at(0) ==
      std::pair<std::string, std::string>(
          "verdict",
          "with these scales do not serve so: KL 0.3700, perplexity +0.00 % (limits: 0.1, +5 %)"));
  CHECK(lines.at(1).second ==
        "with scale 1.0 noticeable: KL 0.0010, perplexity +0.00 % (fine up to 0.02, +1 %), clips "
        "2 %");
  const Json json = to_json(measured);
  CHECK(json.at("calibrated").at("verdict") == "do_not_serve");
  CHECK(json.at("unit").at("verdict") == "noticeable");
  CHECK(json.at("unit").at("clipped") == 0.02);
}
