#include "run/scored_scales.h"

#include <algorithm>

#include "core/file.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

CacheDamage damage_of_kl(double kl) {
  return {.kl_mean = kl, .perplexity_increase = 0, .num_tokens = 5000};
}

ScoredCache cache_of(const std::string& name, const CacheType& type, const std::string& scales,
                     double kl) {
  ScoredCache cache{
      .label = {.name = name, .type = type, .scales_source = scales, .bytes_per_token = 132},
      .result = {}};
  cache.result.num_tokens = 5000;
  cache.result.kl_mean = kl;
  cache.result.kl_stderr = 0;
  cache.result.perplexity_increase = 0;
  return cache;
}

RemedyFacts facts_of(const ModelConfig& config, double calibrated, double unit) {
  return {.config = config,
          .model = "my model",
          .calibrate = "kvcal calibrate 'my model'",
          .output = "./out",
          .calibrated = damage_of_kl(calibrated),
          .unit = damage_of_kl(unit),
          .bytes_fp8 = 128};
}

std::vector<std::string> names_of(const std::vector<Remedy>& remedies) {
  std::vector<std::string> names;
  for (const Remedy& remedy : remedies) names.push_back(remedy.name);
  return names;
}

}  // namespace

TEST_CASE("remedies: a fine cache needs none") {
  const ModelFixture fixture("llama");
  CHECK(remedies_of(facts_of(fixture.config, 0.01, 0.01)).empty());
  CHECK(remedies_of(facts_of(fixture.config, 0.01, 0.5)).empty());
  CHECK(remedies_of(facts_of(fixture.config, 0.5, 0.01)).empty());
  CHECK(remedies_text({}).empty());
}

TEST_CASE("remedies: each says its cost, its memory and the line to type") {
  const ModelFixture fixture("llama");
  const std::vector<ScoredCache> caches{
      cache_of("int8, by layer", CacheFormat::kInt8, "calibrated", 0.001),
      cache_of("int8_per_token_head", CacheFormat::kInt8PerTokenHead, "dynamic", 0.0156),
      cache_of("fp8_per_token_head", CacheFormat::kFp8PerTokenHead, "dynamic", 0.1685),
      cache_of("mxfp8", CacheFormat::kMxfp8, "dynamic", 0.01)};
  RemedyFacts facts = facts_of(fixture.config, 0.37, 0.3);
  facts.caches = &caches;
  CHECK(remedies_text(remedies_of(facts)) ==
        "remedies:\n"
        "  weights of the same function, rewritten for this cache: KL to be measured, 128 bytes a "
        "token\n"
        "      kvcal calibrate 'my model' --smooth -o ./out\n"
        "  another cache, int8_per_token_head: KL 0.0156 (fine), 132 bytes a token\n"
        "      vllm serve 'my model' --kv-cache-dtype int8_per_token_head\n"
        "  16 bits for the layers that cost most: KL at most 0.02, memory as it then says\n"
        "      kvcal calibrate 'my model' --kl-budget 0.02 -o ./out\n"
        "  16 bits for all layers: KL 0.0000 (fine), 256 bytes a token\n"
        "      vllm serve 'my model'\n");
  const Json json = to_json(remedies_of(facts));
  CHECK(json.at(1).at("verdict") == "fine");
  CHECK(json.at(1).at("bytes_per_token") == 132);
  CHECK(json.at(2).at("kl_limit") == 0.02);
  CHECK_FALSE(json.at(2).contains("kl_mean"));
}

TEST_CASE("remedies: rewritten weights have their measured cost, and are offered where they help") {
  const ModelFixture fixture("llama");
  RemedyFacts facts = facts_of(fixture.config, 0.37, 0.3);
  facts.rewritten = damage_of_kl(0.0065);
  const std::vector<Remedy> better = remedies_of(facts);
  CHECK(better.at(0).name == "weights of the same function, rewritten for this cache");
  CHECK(to_json(better).at(0).at("kl_mean") == 0.0065);
  CHECK(to_json(better).at(0).at("verdict") == "fine");
  facts.rewritten = damage_of_kl(0.2);
  CHECK(
      names_of(remedies_of(facts)) ==
      std::vector<std::string>{"16 bits for the layers that cost most", "16 bits for all layers"});
  facts.rewritten.reset();
  facts.is_rewritten = true;
  CHECK(
      names_of(remedies_of(facts)) ==
      std::vector<std::string>{"16 bits for the layers that cost most", "16 bits for all layers"});
}

TEST_CASE("remedies: scales that are chosen by attention come before what changes more") {
  const ModelFixture fixture("llama");
  RemedyFacts facts = facts_of(fixture.config, 0.37, 0.3);
  facts.by_attention = "kvcal calibrate m --recipe fp8_kv_attention_mse";
  facts.attention = damage_of_kl(0.0086);
  const std::vector<Remedy> remedies = remedies_of(facts);
  CHECK(remedies.at(0).name == "scales of K chosen by what they do to attention");
  CHECK(remedies.at(0).command == "kvcal calibrate m --recipe fp8_kv_attention_mse -o ./out");
  CHECK(to_json(remedies).at(0).at("verdict") == "fine");
  facts.attention = damage_of_kl(0.4);
  CHECK(names_of(remedies_of(facts)).at(0) ==
        "weights of the same function, rewritten for this cache");
  CalibrateRequest request;
  CHECK(attention_line(request, "m") == "kvcal calibrate m --recipe fp8_kv_attention_mse");
  request.recipe = "mine.yaml";
  CHECK(attention_line(request, "m").empty());
}

TEST_CASE("remedies: none whose own numbers are as bad") {
  const ModelFixture fixture("llama");
  const std::vector<ScoredCache> caches{
      cache_of("fp8_per_token_head", CacheFormat::kFp8PerTokenHead, "dynamic", 0.1685)};
  for (const double calibrated : {0.01, 0.05, 0.2})
    for (const double unit : {0.01, 0.05, 0.2})
      for (const bool are_made : {false, true}) {
        CAPTURE(calibrated, unit, are_made);
        RemedyFacts facts = facts_of(fixture.config, calibrated, unit);
        facts.caches = &caches;
        facts.are_made = are_made;
        const Damage found =
            judge(damage_of_kl(are_made ? calibrated : std::min(calibrated, unit))).damage;
        for (const Remedy& remedy : remedies_of(facts)) {
          CAPTURE(remedy.name);
          CHECK_FALSE(remedy.command.empty());
          if (!remedy.damage) continue;
          CHECK(judge(*remedy.damage).damage != Damage::kDoNotServe);
          CHECK(judge(*remedy.damage).damage <= found);
        }
      }
}

TEST_CASE("remedies: the better of both scales is one where the other is served") {
  const ModelFixture fixture("llama");
  const auto has = [](const RemedyFacts& facts, const std::string& name) {
    const auto names = names_of(remedies_of(facts));
    return std::ranges::find(names, name) != names.end();
  };
  CHECK(has(facts_of(fixture.config, 0.05, 0.2), "calibrated scales"));
  RemedyFacts made = facts_of(fixture.config, 0.4, 0.01);
  made.are_made = true;
  CHECK(has(made, "scale 1.0, of the model itself"));
  made.unit->clipped = 1e-6;
  CHECK_FALSE(has(made, "scale 1.0, of the model itself"));
}

TEST_CASE("remedies: weights are rewritten only where the family allows it") {
  const ModelFixture fixture("deepseek_v3");
  const auto names = names_of(remedies_of(facts_of(fixture.config, 0.37, 0.37)));
  CHECK(std::ranges::find(names, "weights of the same function, rewritten for this cache") ==
        names.end());
  CHECK(names.size() == 2);
}
