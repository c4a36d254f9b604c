#include "run/evaluation.h"

#include "run/support/text_checkpoint.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::KeptLines;
using kvcal::test::message_of;
using kvcal::test::TextCheckpoint;

namespace {

EvalOptions options_of(const TextCheckpoint& files) {
  return {.model = files.path(),
          .dataset = files.text(),
          .device = test::reference_device(),
          .sequences = {.max_seq_length = 16},
          .version = "1.2"};
}

}  // namespace

TEST_CASE("evaluation: perplexity of one cache stands beside the run's own numbers") {
  const TextCheckpoint files;
  KeptLines lines;
  const EvalOptions options = options_of(files);
  const report::EvalReport result = evaluate_likelihood(options, {}, lines).report;
  REQUIRE(result.variants.size() == 1);
  CHECK(result.is_single);
  CHECK(result.reference.empty());
  CHECK(result.variants[0].cache.name == "float16");
  CHECK(result.variants[0].all.num_tokens > 0);
  CHECK_FALSE(result.variants[0].all.kl_mean.has_value());
  CHECK(lines.last == std::pair<std::string, bool>("eval", true));
  const Json json = likelihood_json(options, {}, result);
  CHECK(json.at("task") == "perplexity");
  CHECK(json.at("version") == "1.2");
  CHECK(json.at("perplexity") == result.variants[0].all.perplexity);
  CHECK_FALSE(json.contains("variants"));
}

TEST_CASE("evaluation: KL is given for each variant and layer before texts are written") {
  const TextCheckpoint files;
  KeptLines lines;
  EvalOptions options = options_of(files);
  options.variants = {"same=float16", "unit=fp8_e4m3:unit"};
  LikelihoodOptions asked{.has_reference = true, .per_layer = true, .num_texts = 1};
  asked.gates.max_kl = 0.0;
  bool has_scores = false;
  const EvalResult found =
      evaluate_likelihood(options, asked, lines, [&](const EvalResult& scores) {
        has_scores = scores.report.texts.empty() && scores.report.variants.size() == 2;
      });
  const report::EvalReport& result = found.report;
  CHECK(has_scores);
  CHECK(result.reference == "the same model with an unquantized cache");
  CHECK(*result.variants[0].all.kl_mean == 0.0);
  CHECK(*result.variants[1].all.kl_mean > 0.0);
  CHECK(result.variants[0].layers.empty());
  REQUIRE(result.variants[1].layers.size() == 2);
  CHECK(result.variants[1].layers[1].layer == 1);
  REQUIRE(found.missed.size() == 1);
  CHECK(contains(found.missed[0], "unit: --max-kl: the mean KL is "));
  CHECK(result.texts.at(0).variants.size() == 2);
  CHECK(likelihood_json(options, asked, result).at("variants").at(1).at("layers").size() == 2);
  CHECK(result.task == "kl");
}

TEST_CASE("evaluation: skipped layers keep 16 bits in every quantized cache") {
  const TextCheckpoint files;
  SilentDiagnostics silent;
  EvalOptions options = options_of(files);
  options.variants = {"unit=fp8_e4m3:unit", "int8=int8_per_token_head"};
  const report::EvalReport whole =
      evaluate_likelihood(options, {.has_reference = true, .per_layer = true}, silent).report;
  options.cache.skip_layers = {0};
  const report::EvalReport skipped =
      evaluate_likelihood(options, {.has_reference = true}, silent).report;
  for (size_t i = 0; i < 2; ++i) {
    // Of two layers, the other one is quantized alone.
    CHECK(*skipped.variants[i].all.kl_mean > 0.0);
    CHECK(*skipped.variants[i].all.kl_mean == *whole.variants[i].layers[1].result.kl_mean);
  }
  CHECK(skipped.variants[0].cache.bytes_per_token ==
        whole.variants[0].cache.bytes_per_token * 3 / 2);
  options.cache.skip_layers = {2};
  CHECK(contains(message_of([&] { evaluate_likelihood(options, {}, silent); }),
                 "--kv-cache-dtype-skip-layers: layer 2 is none of the layers with K and V"));
}

TEST_CASE("evaluation: GSM8K keeps each variant's answers") {
  const TextCheckpoint files;
  SilentDiagnostics silent;
  const fs::path data = test::tests_folder() / "fixtures" / "eval";
  EvalOptions options = options_of(files);
  options.dataset = (data / "gsm8k_questions.jsonl").string();
  options.variants = {"wide=float32", "unit=fp8_e4m3:unit"};
  GsmTaskOptions asked;
  asked.questions.num_fewshot = 0;
  asked.questions.limit = 2;
  asked.questions.max_gen_toks = 8;
  asked.gates.min_strict = 1.0;
  const EvalResult found = evaluate_gsm8k(options, asked, silent);
  const report::EvalReport& result = found.report;
  REQUIRE(result.variants.size() == 2);
  CHECK(result.variants[1].cache.name == "unit");
  CHECK(result.variants[1].answers->answers.size() == 2);
  CHECK_FALSE(result.is_single);  // each variant has its own number of questions
  CHECK(found.missed.size() == 2);
  const Json json = gsm8k_json(options, asked, result);
  CHECK(json.at("samples").size() == 4);
  CHECK(json.at("samples").at(3).at("variant") == "unit");
  CHECK(json.at("limit") == 2);
  const std::string page = eval_page(result);
  CHECK(contains(page, "\">Question: "));
  CHECK(contains(page, "<td>unit"));
}

TEST_CASE("evaluation: sensitivity ranks the layers and proposes those to keep") {
  const TextCheckpoint files;
  SilentDiagnostics silent;
  EvalOptions options = options_of(files);
  CHECK(contains(message_of([&] { evaluate_sensitivity(options, {}, silent); }),
                 "needs a quantized cache, this one is float16"));
  options.cache.unit_scales = true;
  CHECK(contains(message_of([&] { evaluate_sensitivity(options, {.needs_recipe = true}, silent); }),
                 "no recipe makes this cache, the scales are not the checkpoint's"));
  const report::EvalReport high =
      evaluate_sensitivity(options, {.kl_budget = 100.0}, silent).report;
  const report::Sensitivity& all = high.sensitivity.value();
  REQUIRE(all.ranking.size() == 2);
  CHECK(all.ranking[0].kl_mean >= all.ranking[1].kl_mean);
  REQUIRE(all.proposal.has_value());
  CHECK(all.proposal->layers.empty());
  CHECK(all.proposal->num_layers == 2);
  const report::EvalReport zero = evaluate_sensitivity(options, {.kl_budget = 0.0}, silent).report;
  const report::Sensitivity& none = zero.sensitivity.value();
  CHECK(none.proposal->layers == std::vector<int64_t>{0, 1});
  CHECK(none.proposal->recipe.empty());
  const Json json = sensitivity_json(options, zero).at("sensitivity");
  CHECK(json.at("kept_layers").size() == 2);
  CHECK(json.at("bytes_per_token_16_bit") == none.bytes_per_token_16_bit);
  CHECK(none.proposal->kl_budget == 0.0);
}

TEST_CASE("evaluation: variants are told apart by their text") {
  const VariantSpec spec = parse_variant("a=fp8_e4m3:scales.json");
  CHECK(spec.name == "a");
  CHECK(spec.cache.kv_cache_dtype == "fp8_e4m3");
  CHECK(spec.cache.scales == "scales.json");
  CHECK(parse_variant("b=model:out").folder == "out");
  CHECK(parse_variant("c=auto:unit").cache.unit_scales);
  const VariantSpec attention = parse_variant("d=fp8_e4m3+attention:unit");
  CHECK(attention.cache.kv_cache_dtype == "fp8_e4m3");
  CHECK(attention.cache.fp8_attention);
  CHECK(attention.cache.unit_scales);
  for (const char* bad : {"a", "=auto", "a=", "a=auto:", "a=model", "a=fp9", "a=float16:unit"}) {
    INFO(bad);
    CHECK(contains(message_of([&] { parse_variant(bad); }), "--variant"));
  }
  const TextCheckpoint files;
  SilentDiagnostics silent;
  EvalOptions options = options_of(files);
  options.variants = {"a=float32", "a=float16"};
  CHECK(contains(message_of([&] { evaluate_likelihood(options, {}, silent); }),
                 "the name 'a' is given twice"));
}

TEST_CASE("evaluation: FP8 attention costs more than its cache, and says its name") {
  const TextCheckpoint files;
  KeptLines lines;
  EvalOptions options = options_of(files);
  options.variants = {"cache=fp8_e4m3:unit", "attention=fp8_e4m3+attention:unit"};
  const LikelihoodOptions asked{.has_reference = true};
  const report::EvalReport result = evaluate_likelihood(options, asked, lines).report;
  REQUIRE(result.variants.size() == 2);
  CHECK(*result.variants[1].all.kl_mean > *result.variants[0].all.kl_mean);
  const Json json = likelihood_json(options, asked, result);
  CHECK_FALSE(json.at("variants")[0].contains("fp8_attention"));
  CHECK(json.at("variants")[1].at("fp8_attention") == true);
  options.variants = {"a=fp8_e5m2+attention:unit"};
  CHECK(contains(message_of([&] { evaluate_likelihood(options, {}, lines); }),
                 "FP8 attention needs an fp8_e4m3 cache, this one is fp8_e5m2"));
}
