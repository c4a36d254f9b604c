// Static input scales of Linears beside K and V: equal to llm-compressor's in float32.
#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

Recipe recipe_with(const std::string& observer) {
  const std::string fp8 = "type: float, num_bits: 8, strategy: tensor";
  return parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {ignore: [lm_head], config_groups: {g: "
      "{targets: [Linear], weights: {" +
      fp8 + "}, input_activations: {" + fp8 + ", observer: " + observer +
      "}}}, kv_cache_scheme: {" + fp8 + ", observer: " + observer + "}}}}");
}

struct Outcome {
  Calibration calibration;
  Statistics statistics;
};

Outcome run(ModelFixture& fixture, const Recipe& recipe, const std::vector<Sample>& samples,
            const CalibrationOptions& options) {
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, ids,
                           {.batch_tokens = 64}, silent);
  Outcome outcome;
  outcome.calibration =
      calibrate(forward, fixture.config, resolve_plan(recipe, fixture.config, silent), samples,
                options, &outcome.statistics, silent);
  return outcome;
}

std::vector<Sample> samples_of(const Json& lists) {
  std::vector<Sample> samples;
  for (const Json& list : lists)
    samples.push_back({static_cast<int64_t>(samples.size()), list.get<std::vector<TokenId>>()});
  return samples;
}

const LinearCalibration& linear_of(const Calibration& calibration, const std::string& module) {
  const auto found = std::ranges::find(calibration.linears, module, &LinearCalibration::module);
  INFO(module);
  REQUIRE(found != calibration.linears.end());
  return *found;
}

void check_close(float found, const Json& expected) {
  CHECK(test::relative_error(static_cast<double>(found), expected.get<double>()) <= 1e-4);
}

}  // namespace

TEST_CASE("static input scales equal llm-compressor's in float32") {
  for (const std::string name : {"llama", "phi3", "qwen3", "mixtral", "gemma2", "granitemoe",
                                 "granitemoehybrid_moe", "gpt_oss"}) {
    const Json reference = parse_json(
        read_text(test::tests_folder() / "fixtures" / "llmcompressor" / (name + ".json")));
    const std::vector<Sample> samples = samples_of(reference.at("ids"));
    REQUIRE(reference.at("runs").size() == 2);
    for (const Json& expected : reference.at("runs")) {
      const std::string observer = expected.at("observer");
      INFO(name << ", " << observer);
      ModelFixture fixture(name);
      // Its experts see all tokens.
      const Calibration calibration =
          run(fixture, recipe_with(observer), samples,
              {.kv_forward = KvForward::kExact, .derive = {.all_experts = true}})
              .calibration;
      REQUIRE(calibration.linears.size() == expected.at("input_scale").size());
      for (const auto& [module, scale] : expected.at("input_scale").items()) {
        INFO(module);
        check_close(linear_of(calibration, module).input_scale.value, scale);
      }
      REQUIRE(calibration.layers.size() == expected.at("k_scale").size());
      for (const AttentionCalibration& layer : calibration.layers) {
        check_close(layer.k.scales[0].value, expected.at("k_scale").at(layer.module));
        check_close(layer.v.scales[0].value, expected.at("v_scale").at(layer.module));
      }
    }
  }
}

TEST_CASE("statistics of an exact run give every observer's scales to the bit") {
  for (const std::string name : {"llama", "mixtral", "jamba", "gpt_oss"}) {
    INFO(name);
    ModelFixture fixture(name);
    std::vector<Sample> samples;
    for (const size_t length : {7, 3, 12, 1, 9})
      samples.push_back({static_cast<int64_t>(samples.size()),
                         {fixture.ids.begin(), fixture.ids.begin() + length}});
    CalibrationOptions options{.kv_forward = KvForward::kExact, .derive = {.all_experts = true}};
    options.observes_all = true;
    const Statistics kept = run(fixture, recipe_with("static_minmax"), samples, options).statistics;
    options.observes_all = false;
    SilentDiagnostics silent;
    for (const std::string observer :
         {"static_minmax", "minmax", "memoryless_minmax", "mse", "percentile", "entropy"}) {
      INFO(observer);
      const Recipe recipe = recipe_with(observer);
      const Calibration direct = run(fixture, recipe, samples, options).calibration;
      const Calibration derived = derive(kept, resolve_plan(recipe, fixture.config, silent),
                                         fixture.config, options.derive, silent);
      REQUIRE(derived.layers.size() == direct.layers.size());
      for (size_t i = 0; i < direct.layers.size(); ++i) {
        CHECK(derived.layers[i].k.scales[0].value == direct.layers[i].k.scales[0].value);
        CHECK(derived.layers[i].v.scales[0].value == direct.layers[i].v.scales[0].value);
      }
      REQUIRE(!direct.linears.empty());
      REQUIRE(derived.linears.size() == direct.linears.size());
      for (size_t i = 0; i < direct.linears.size(); ++i)
        CHECK(derived.linears[i].input_scale.value == direct.linears[i].input_scale.value);
    }
  }
}

TEST_CASE("an expert that no token reached is an error that names it") {
  ModelFixture fixture("mixtral");
  const std::vector<Sample> samples{{0, {fixture.ids.begin(), fixture.ids.begin() + 1}}};
  try {
    run(fixture, recipe_with("static_minmax"), samples, {});
    FAIL("no error");
  } catch (const Error& error) {
    // One token reaches two of the five experts; none is named twice.
    CHECK(
        error.message().starts_with("no token reached 3 experts of layer 0, which gives their "
                                    "inputs no scale: model.layers.0.block_sparse_moe.experts."));
    CHECK(error.message().ends_with("; show every expert all tokens with --moe-all-experts"));
  }
  const Outcome all =
      run(fixture, recipe_with("static_minmax"), samples, {.derive = {.all_experts = true}});
  for (const LinearCalibration& linear : all.calibration.linears) CHECK(linear.input_tokens == 1);
}

TEST_CASE("experts that few tokens reached are one warning a layer, other modules none") {
  ModelFixture fixture("mixtral");
  const std::vector<Sample> samples{{0, fixture.ids}};
  const Recipe recipe = recipe_with("static_minmax");
  Statistics kept =
      run(fixture, recipe, samples, {.kv_forward = KvForward::kExact, .observes_all = true})
          .statistics;
  for (InputStatistics& input : kept.inputs) input.tokens = 100;
  for (InputStatistics& input : kept.inputs)
    if (input.name.starts_with("model.layers.1.") &&
        input.name.find("experts.") != std::string::npos)
      input.tokens = input.name.find("experts.3") != std::string::npos ? 3 : 31;
  struct Warnings : SilentDiagnostics {
    void warn(const std::string& message) override { all.push_back(message); }
    std::vector<std::string> all;
  } warnings;
  const QuantPlan plan = resolve_plan(recipe, fixture.config, warnings);
  warnings.all.clear();
  derive(kept, plan, fixture.config, {}, warnings);
  REQUIRE(warnings.all.size() == 1);
  CHECK(warnings.all[0] ==
        "fewer than 32 tokens reached 5 experts of layer 1: "
        "model.layers.1.block_sparse_moe.experts.3 (3), "
        "model.layers.1.block_sparse_moe.experts.0 (31), "
        "model.layers.1.block_sparse_moe.experts.1 (31), "
        "model.layers.1.block_sparse_moe.experts.2 (31), "
        "model.layers.1.block_sparse_moe.experts.4 (31)");
  warnings.all.clear();
  derive(kept, plan, fixture.config, {.all_experts = true}, warnings);
  CHECK(warnings.all.empty());
}

TEST_CASE("a run without KV scales keeps what KV scales can be made of") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  const CalibrationOptions exact{.kv_forward = KvForward::kExact, .observes_all = true};
  const Recipe weights = parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {targets: [Linear], scheme: FP8, ignore: "
      "[lm_head]}}}");
  const Recipe cache = parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float, strategy: "
      "attn_head}}}}");
  const Outcome kept = run(fixture, weights, samples, exact);
  REQUIRE(kept.calibration.layers.empty());
  SilentDiagnostics silent;
  const Calibration derived = derive(kept.statistics, resolve_plan(cache, fixture.config, silent),
                                     fixture.config, {}, silent);
  const Calibration direct =
      run(fixture, cache, samples, {.kv_forward = KvForward::kExact}).calibration;
  REQUIRE(derived.layers.size() == direct.layers.size());
  REQUIRE(!direct.layers.empty());
  for (size_t i = 0; i < direct.layers.size(); ++i)
    for (size_t head = 0; head < direct.layers[i].k.scales.size(); ++head) {
      CHECK(derived.layers[i].k.scales[head].value == direct.layers[i].k.scales[head].value);
      CHECK(derived.layers[i].v.scales[head].value == direct.layers[i].v.scales[head].value);
    }
}

TEST_CASE("queries that are clipped are counted where they are quantized") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  const auto calibration_of = [&](const std::string& observer, const CalibrationOptions& options) {
    return run(fixture,
               parse_recipe("s_stage: {g_modifiers: {QuantizationModifier: {config_groups: {g: "
                            "{targets: [LlamaAttention], input_activations: {type: float, "
                            "strategy: tensor, observer: " +
                            observer + "}}}}}}"),
               samples, options)
        .calibration;
  };
  const std::string half = "percentile, observer_kwargs: {percentile: 50.0}";
  const Calibration clipped = calibration_of(half, {}), full = calibration_of("static_minmax", {});
  const Calibration uncounted = calibration_of(half, {.kv_forward = KvForward::kExact});
  // Nothing is run behind the last layer's K and V.
  for (size_t i = 0; i + 1 < clipped.layers.size(); ++i) {
    const KvTensorCalibration& q = *clipped.layers[i].q;
    // The median is found in a histogram whose bins are an eighth of an octave.
    CHECK(static_cast<double>(q.num_saturated.value()) ==
          Approx(0.5 * static_cast<double>(q.num_values)).epsilon(0.1));
    CHECK(full.layers[i].q->num_saturated == 0);
    CHECK(!uncounted.layers[i].q->num_saturated);
    CHECK(uncounted.layers[i].k.num_saturated.value() > 0);
  }
}

TEST_CASE("queries are of the cache's FP8 type") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  const Recipe recipe = parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {config_groups: {g: {targets: "
      "[LlamaAttention], input_activations: {type: float, strategy: tensor}}}}}}");
  const Calibration e4m3 = run(fixture, recipe, samples, {}).calibration;
  const Calibration e5m2 =
      run(fixture, recipe, samples, {.derive = {.kv_dtype = KvDType::kFp8E5m2}}).calibration;
  for (size_t i = 0; i < e4m3.layers.size(); ++i) {
    // E4M3 codes of queries / (amax / 57344) would leave an eighth of the range: layers behind the
    // first would see other values, and not by a rounding.
    const auto amax = [&](const Calibration& of) {
      return static_cast<double>(of.layers[i].k.range().amax().value);
    };
    CHECK(amax(e5m2) == Approx(amax(e4m3)).epsilon(0.1));
    CHECK(e5m2.layers[i].q->scales[0].value == e5m2.layers[i].q->range().amax().value / 57344.0f);
  }
}

TEST_CASE("queries are observed and used in the quantized forward") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  const auto calibration_of = [&](const std::string& strategy) {
    return run(fixture,
               parse_recipe("s_stage: {g_modifiers: {QuantizationModifier: {config_groups: {g: "
                            "{targets: [LlamaAttention], input_activations: {type: float, "
                            "strategy: " +
                            strategy + "}}}}}}"),
               samples, {})
        .calibration;
  };
  const Calibration tensor = calibration_of("tensor"), head = calibration_of("attn_head");
  for (size_t i = 0; i < tensor.layers.size(); ++i) {
    REQUIRE(tensor.layers[i].q.has_value());
    REQUIRE(tensor.layers[i].q->scales.size() == 1);
    REQUIRE(head.layers[i].q->scales.size() ==
            static_cast<size_t>(fixture.config.num_attention_heads));
  }
  // Layer 0 sees the same input in both, so its tensor scale is the largest of its heads'.
  float largest = 0.0f;
  for (const Scale& scale : head.layers[0].q->scales) largest = std::max(largest, scale.value);
  CHECK(largest == tensor.layers[0].q->scales[0].value);
}
