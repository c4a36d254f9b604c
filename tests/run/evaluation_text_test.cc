#include "run/evaluation.h"

#include "support/catch.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

Likelihood scored() {
  Likelihood one;
  one.num_tokens = 100;
  one.nll = 1.5;
  one.perplexity = 4.4817;
  return one;
}

Likelihood compared() {
  Likelihood one = scored();
  one.kl_mean = 0.01;
  one.kl_stderr = 0.001;
  one.kl_p99 = 0.2;
  one.kl_max = 0.5;
  one.top1_agreement = 0.9925;
  one.reference_perplexity = 4.4;
  one.perplexity_increase = 0.0186;
  return one;
}

report::EvalVariant variant(const std::string& name, const Likelihood& all) {
  return {.cache = {.name = name,
                    .type = KvDType::kFp8E4m3,
                    .scales_source = "unit",
                    .bytes_per_token = 128},
          .all = all};
}

GsmResult answered() {
  GsmResult result;
  result.answers.resize(2);
  result.num_fewshot = 5;
  result.strict = {.exact_match = 0.5, .stderr_of_mean = 0.25};
  result.flexible = {.exact_match = 1.0, .stderr_of_mean = {}};
  return result;
}

}  // namespace

TEST_CASE("evaluation text: one cache is sentences") {
  report::EvalReport result;
  result.variants = {variant("fp8", scored())};
  CHECK(likelihood_text(result, 40, false) ==
        "fp8_e4m3 cache, 100 tokens: perplexity 4.4817 (NLL 1.500000)\n");
  result.reference = "float16";
  result.variants = {variant("fp8", compared())};
  CHECK(likelihood_text(result, 40, false) ==
        "verdict: noticeable: KL 0.0100, perplexity +1.86 % (fine up to 0.02, +1 %)\n"
        "fp8_e4m3 cache, 100 tokens: perplexity 4.4817 (NLL 1.500000)\n"
        "KL from float16: mean 0.010000 (standard error 0.001000), p99 0.200000, largest 0.500000 "
        "nats; same top token 99.25 %\n"
        "perplexity of float16: 4.4000, so this is +1.860 %\n");
}

TEST_CASE("evaluation text: several caches are a table, and their layers further ones") {
  report::EvalReport result;
  result.is_single = false;
  result.reference = "float16";
  result.variants = {variant("one", compared()), variant("second", compared())};
  result.variants[1].layers = {{.layer = 3, .result = compared()}};
  CHECK(likelihood_text(result, 40, false) ==
        "100 tokens, KL from float16\n"
        "perplexity of float16: 4.4000\n"
        "variant     verdict  bytes a token  perplexity    change   mean KL  same top\n"
        "    one  noticeable            128      4.4817  +1.860 %  0.010000   99.25 %\n"
        " second  noticeable            128      4.4817  +1.860 %  0.010000   99.25 %\n"
        "second: KL with only one layer's cache quantized:\n"
        "layer   mean KL    p99 KL  largest KL  same top\n"
        "    3  0.010000  0.200000    0.500000   99.25 %\n");
  const std::string whole = likelihood_text(result, 40, true);
  for (const char* more : {"cache", "scales", "p99 KL", "largest", "fp8_e4m3", "unit", "0.200000"})
    CHECK(test::contains(whole, more));
}

TEST_CASE("evaluation text: what more text would settle is marked in a table") {
  report::EvalReport result;
  result.is_single = false;
  result.variants = {variant("one", compared()), variant("second", compared())};
  result.variants[1].all.num_tokens = 10;
  CHECK(test::contains(likelihood_text(result, 40, false), " fine* "));
  CHECK(likelihood_text(result, 40, false).ends_with("\n* measure more text to be sure\n"));
}

TEST_CASE("evaluation text: of too many layers the worst are listed") {
  report::EvalReport result;
  result.reference = "float16";
  result.variants = {variant("fp8", compared())};
  for (int layer = 0; layer < 3; ++layer) {
    Likelihood one = compared();
    one.kl_mean = layer == 1 ? 0.2 : 0.1;
    result.variants[0].layers.push_back({.layer = layer, .result = one});
  }
  CHECK(test::contains(likelihood_text(result, 3, false), "quantized:\n"));
  CHECK(likelihood_text(result, 2, false)
            .ends_with("KL with only one layer's cache quantized (the worst 2 of 3 layers; "
                       "--verbose lists all):\n"
                       "layer   mean KL    p99 KL  largest KL  same top\n"
                       "    1  0.200000  0.200000    0.500000   99.25 %\n"
                       "    0  0.100000  0.200000    0.500000   99.25 %\n"));
}

TEST_CASE("evaluation text: answers have an error of the mean where there are several") {
  report::EvalReport result;
  result.variants = {variant("fp8", {})};
  result.variants[0].answers = answered();
  const std::string text = gsm8k_text(result);
  CHECK(test::contains(text, "2 questions, 5 examples each\n"));
  CHECK(test::contains(text, "50.00 % ± 25.00"));
  CHECK(test::contains(text, "         100.00 %  "));
}

TEST_CASE("evaluation text: sensitivity ranks layers and proposes which to keep") {
  report::Sensitivity result;
  result.cache = variant("fp8", {}).cache;
  result.ranking = {{.layer = 1, .kl_mean = 0.02}, {.layer = 0, .kl_mean = 0.01}};
  result.rows.push_back(
      {.kept = {1}, .result = compared(), .bytes_per_token = 96, .is_proposed = true});
  result.proposal =
      report::UnquantizedLayers{.kl_budget = 0.01,
                                .layers = {1},
                                .num_layers = 2,
                                .skip_layers_argument = "--kv-cache-dtype-skip-layers 1",
                                .recipe = ""};
  const std::string tables =
      "fp8_e4m3 cache, mean KL with only one layer quantized:\n"
      "layer   mean KL\n"
      "    1  0.020000\n"
      "    0  0.010000\n"
      "\n"
      "the worst layers in 16 bits, all others FP8:\n"
      "kept   mean KL  perplexity  same top  bytes a token     verdict          \n"
      "   1  0.010000      4.4817   99.25 %             96  noticeable  proposed\n";
  CHECK(sensitivity_text(result, 40) == tables +
                                            "to stay within 0.01 keep 1 of 2 layers in 16 bits: 1\n"
                                            "vLLM: --kv-cache-dtype-skip-layers 1\n");
  result.proposal->layers = {};
  CHECK(sensitivity_text(result, 40) ==
        tables + "every layer may be FP8: the mean KL is within 0.01\n");
  result.proposal->layers = {0, 1};
  CHECK(sensitivity_text(result, 40) ==
        tables + "no FP8 cache is within 0.01: every layer would keep 16 bits\n");
  result.proposal.reset();
  CHECK(sensitivity_text(result, 40) == tables);
  CHECK(sensitivity_text(result, 1).starts_with(
      "fp8_e4m3 cache, mean KL with only one layer quantized (the worst 1 of 2 layers; --verbose "
      "lists all):\n"
      "layer   mean KL\n"
      "    1  0.020000\n"
      "\n"));
}
