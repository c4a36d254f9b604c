#include "inspect/page_values.h"

#include "engines/verify.h"
#include "inspect/support/checkpoint_copy.h"
#include "support/catch.h"

namespace kvcal {
namespace {

using report::CheckpointReport;
using test::contains;
using test::model_fixture;

}  // namespace

TEST_CASE("page_values: what is not known is a gap") {
  const CheckpointReport page =
      page_values(InspectionResult(model_fixture("llama").string()), "1.2");
  CHECK(page.name == "llama");
  CHECK(page.version == "1.2");
  CHECK(page.cache_bytes_fp8 == 64);
  CHECK(page.cache_bytes_16_bit == 128);
  CHECK(page.layers.size() == 2);
  CHECK(!page.stop);
  REQUIRE(page.gaps.size() == 2);
  CHECK(contains(page.gaps[0], "No layer has KV scales"));
  CHECK(contains(page.gaps[1], "There is no kvcal_manifest.json"));
  CHECK(!page.engines.empty());
  CHECK(!report::checkpoint_page(page).empty());
}

TEST_CASE("page_values: statistics come from the manifest, typed") {
  const test::CheckpointCopy copy("llama");
  copy.write_manifest(test::sample_manifest());
  const CheckpointReport page = page_values(InspectionResult(copy.path()), "1.2");
  CHECK(page.layers[0].k.amax == 4.0f);
  CHECK(page.layers[0].k.head_amax == std::vector<float>{4.0f, 1.0f});
  CHECK(page.layers[0].k.saturated == 0.25);
  CHECK(page.layers[0].k.scales.empty());
  CHECK(page.origin == report::Pairs{{"data set", "chats.jsonl"}, {"samples", "4, 512 tokens"}});
  CHECK(page.warnings == std::vector<std::string>{"scales still move"});
}

TEST_CASE("page_values: positions come from the manifest, in this version's buckets") {
  const test::CheckpointCopy copy("llama");
  Json manifest = test::sample_manifest();
  manifest["layers"][0]["positions"] = {
      {"first", {0, 1, 2}}, {"k_amax", {4.0, 1.0, 2.0}}, {"v_amax", {1.0, 1.0, 2.0}}};
  manifest["summary"]["late_positions"] = {
      {"k_layers", {0}}, {"v_layers", Json::array()}, {"first", 384}, {"advised_tokens", 1024}};
  copy.write_manifest(manifest);
  const CheckpointReport page = page_values(InspectionResult(copy.path()), "1.2");
  CHECK(page.layers[0].k.position_amax == std::vector<float>{4.0f, 1.0f, 2.0f});
  CHECK(page.layers[1].k.position_amax.empty());
  REQUIRE(page.late);
  CHECK(page.late->k_layers == std::vector<int64_t>{0});
  CHECK(contains(checkpoint_page(page), "K of layer 0 is still largest"));
  manifest["layers"][0]["positions"]["k_largest"] = {
      {"record", 12}, {"first", 0}, {"last", 0}, {"text", "<s>"}};
  manifest["layers"][0]["positions"]["v_largest"] = {{"record", 3}, {"first", 96}, {"last", 127}};
  copy.write_manifest(manifest);
  const std::string named = checkpoint_page(page_values(InspectionResult(copy.path()), "1.2"));
  CHECK(contains(named, "position 0 of record 12: “&lt;s&gt;”"));
  CHECK(contains(named, "positions 96 – 127 of record 3"));
  manifest["layers"][0]["positions"]["v_largest"]["last"] = 95;
  copy.write_manifest(manifest);
  CHECK(contains(test::message_of([&] { page_values(InspectionResult(copy.path()), "1.2"); }),
                 "positions: v_largest: found record 3, tokens 96 to 95"));
  manifest["layers"][0]["positions"]["v_largest"]["last"] = 127;
  manifest["layers"][0]["positions"]["first"][2] = 5;
  copy.write_manifest(manifest);
  CHECK(contains(test::message_of([&] { page_values(InspectionResult(copy.path()), "1.2"); }),
                 "positions: first: found 5, expected 2"));
}

TEST_CASE("page_values: what the cache does to attention comes from the manifest") {
  const test::CheckpointCopy copy("llama");
  Json manifest = test::sample_manifest();
  Json& damage = manifest["layers"][0]["attention_damage"];
  damage["calibrated"] = {
      {"output_error", 0.5}, {"weights_kl", 3.5}, {"head_output_error", {0.5, 0.25}}};
  damage["unit"] = {{"output_error", 0.75}, {"weights_kl", -1e-9}};
  copy.write_manifest(manifest);
  const CheckpointReport page = page_values(InspectionResult(copy.path()), "1.2");
  REQUIRE(page.layers[0].damage);
  CHECK(page.layers[0].damage->calibrated.weights_kl == 3.5f);
  CHECK(page.layers[0].damage->calibrated.head_output_error == std::vector<float>{0.5f, 0.25f});
  CHECK(page.layers[0].damage->unit.output_error == 0.75f);
  CHECK(page.layers[0].damage->unit.weights_kl == 0.0f);
  CHECK(!page.layers[1].damage);
  const auto message = [&] {
    copy.write_manifest(manifest);
    return test::message_of([&] { page_values(InspectionResult(copy.path()), "1.2"); });
  };
  damage.erase("unit");
  CHECK(contains(message(), "layer 0: attention_damage: "));
  damage["unit"] = {{"output_error", "large"}, {"weights_kl", 1.0}};
  CHECK(message().find("output_error") != std::string::npos);
  INFO(message());
  CHECK(contains(message(), "attention_damage: unit: "));
}

TEST_CASE(
    "page_values: an output of scales alone is shown with its model, and no engine is asked") {
  const test::CheckpointCopy model("llama");
  const test::ScratchFolder output;
  test::write_file(output / kManifestName, dump_json(test::sample_manifest()));
  const CheckpointReport page = page_values(output.path(), "Out", model.path(), "1.2");
  CHECK(page.layers[0].v.scales == std::vector<float>{0.25f, 0.125f});
  CHECK(page.scale_format == "in Out");
  CHECK(page.engines.empty());
  CHECK(!page.engine_words.empty());
}

TEST_CASE("page_values: an output that is not at its place is shown as it will be named") {
  const test::CheckpointCopy output("llama");
  const CheckpointReport page = page_values(output.path(), "some/Out", "model", "1.2");
  CHECK(page.path == "some/Out");
  CHECK(page.name == "Out");
  const test::ScratchFolder several;
  fs::copy(output.path(), several / "tgi");
  CHECK(page_values(several.path(), "Out", "model", "1.2").path == "Out/tgi");
}

TEST_CASE("page_values: an engine is shown as verify judges it, with the files that it loads") {
  const test::CheckpointCopy copy("llama");
  const fs::path folder = copy.path();
  fs::copy_file(folder / "model.safetensors", folder / "stray.safetensors");
  const CheckpointReport page = page_values(InspectionResult(copy.path()), "1.2");
  size_t refusing = 0;
  REQUIRE(page.engines.size() == engine_rules().names().size());
  for (const VerifyReport& load : page.engines) {
    CAPTURE(load.engine);
    const VerifyReport judged = verify_checkpoint(folder, load.engine, {});
    CHECK(load.loads == judged.loads);
    REQUIRE(load.findings.size() == judged.findings.size());
    for (size_t i = 0; i < judged.findings.size(); ++i)
      CHECK(load.findings[i].message == judged.findings[i].message);
    if (!judged.loads) ++refusing;
  }
  CHECK(refusing > 0);  // those that load every file, and want each name once
}

TEST_CASE("page_values: a page begins with what the cache costs, measured or else predicted") {
  const test::CheckpointCopy copy("llama");
  const auto verdicts = [&](const Json& manifest) {
    copy.write_manifest(manifest);
    return page_values(InspectionResult(copy.path()), "1.2").verdicts;
  };
  Json manifest = test::sample_manifest();
  CHECK(verdicts(manifest).empty());
  manifest["summary"]["predicted"] = {{"calibrated", {{"kl_mean", 0.28}}},
                                      {"unit", {{"kl_mean", 0.006}}}};
  CHECK(verdicts(manifest) ==
        std::vector<std::string>{"With these scales do not serve so: predicted KL 0.2800 (limits: "
                                 "0.1); --measure measures it",
                                 "With scale 1.0 fine: predicted KL 0.0060 (fine up to 0.02)"});
  manifest["measured"] = {{"num_tokens", 5000},
                          {"calibrated", {{"kl_mean", 0.37}, {"perplexity_increase", 0.34}}}};
  CHECK(verdicts(manifest) ==
        std::vector<std::string>{"With these scales do not serve so: KL 0.3700, perplexity +34.00 "
                                 "% (limits: 0.1, +5 %)"});
  CHECK(contains(checkpoint_page(page_values(InspectionResult(copy.path()), "1.2")),
                 "<ul class=\"verdicts\"><li>With these scales do not serve so"));
  manifest["measured"]["calibrated"]["kl_mean"] = "small";
  const std::string message = test::message_of([&] { verdicts(manifest); });
  INFO(message);
  CHECK(contains(message, "kvcal_manifest.json: measured: calibrated: key 'kl_mean' is a string"));
}

TEST_CASE("page_values: a manifest that is not ours is an Error with layer and key") {
  const test::CheckpointCopy copy("llama");
  Json manifest = test::sample_manifest();
  manifest["layers"][1]["k_amax"] = "large";
  copy.write_manifest(manifest);
  const std::string message =
      test::message_of([&] { page_values(InspectionResult(copy.path()), "1.2"); });
  CHECK(contains(message, "kvcal_manifest.json: layer 1: "));
  CHECK(contains(message, "k_amax"));
}

}  // namespace kvcal
