// Layers that read another layer's cache: its statistics and scales are theirs, and what nobody
// needs of them does not run.
#include <map>

#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "calib/statistics/observed_statistics.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

constexpr const char* kFixture = "gemma4_e2b";  // layers 3 to 5 read the caches of layers 1 and 2

Recipe recipe_ignoring(std::vector<std::string> modules, bool with_queries = false) {
  QuantArgs scheme;
  scheme.type = QuantType::kFloat;
  scheme.strategy = Strategy::kTensor;
  scheme.observer = "static_minmax";
  Recipe recipe;
  Modifier& modifier = recipe.modifiers.emplace_back();
  if (with_queries) {
    QuantScheme group;
    group.targets = {"re:.*self_attn$"};
    group.input_activations = scheme;
    modifier.config_groups.emplace_back("attention", group);
  } else {
    modifier.kv_cache_scheme = scheme;
  }
  modifier.ignore = std::move(modules);
  return recipe;
}

/// Passes calls on and counts them by layer.
class CountedForward : public LayerForward {
 public:
  explicit CountedForward(LayerForward& forward) : forward_(forward) {}
  LayerResult run(const LayerCall& call) override {
    ++calls[call.layer];
    return forward_.run(call);
  }
  void request(const ObservationRequest& request) override { forward_.request(request); }
  int64_t num_tokens() const override { return forward_.num_tokens(); }
  void show_hidden(HiddenSink* sink) override { forward_.show_hidden(sink); }
  void restore_hidden(int64_t next_layer, const HiddenSource& source) override {
    forward_.restore_hidden(next_layer, source);
  }
  std::map<int64_t, int> calls;

 private:
  LayerForward& forward_;
};

struct Run {
  Calibration calibration;
  Statistics statistics;
  std::map<int64_t, int> calls;
};

Run run(const Recipe& recipe, KvForward mode, bool observes_all = false) {
  ModelFixture fixture(kFixture);
  const std::vector<Sample> samples{{0, fixture.ids},
                                    {1, {fixture.ids.begin(), fixture.ids.begin() + 9}}};
  const std::vector<std::span<const TokenId>> ids{samples[0].ids, samples[1].ids};
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, ids, {}, silent);
  CountedForward counted(forward);
  const QuantPlan plan = resolve_plan(recipe, fixture.config, silent);
  Run result;
  result.calibration =
      calibrate(counted, fixture.config, plan, samples,
                {.kv_forward = mode, .observes_all = observes_all}, &result.statistics, silent);
  result.calls = counted.calls;
  return result;
}

void check_copied(const Run& run) {
  const ModelConfig config = ModelFixture(kFixture).config;
  const std::vector<AttentionCalibration>& layers = run.calibration.layers;
  REQUIRE(layers.size() == 6);
  REQUIRE(run.statistics.attention.size() == 6);
  for (size_t i = 0; i < 3; ++i) CHECK_FALSE(layers[i].reads_cache_of);
  for (size_t i = 3; i < 6; ++i) {
    const auto source = static_cast<size_t>(config.layers[i].cache_layer);
    CHECK(layers[i].module == config.attention_module(static_cast<int64_t>(i)));
    CHECK(layers[i].reads_cache_of == config.layers[i].cache_layer);
    CHECK(layers[i].k.scales[0].value == layers[source].k.scales[0].value);
    CHECK(layers[i].v.scales[0].value == layers[source].v.scales[0].value);
    CHECK(run.statistics.attention[i].k.heads == run.statistics.attention[source].k.heads);
    CHECK(run.statistics.attention[i].module == layers[i].module);
  }
}

}  // namespace

TEST_CASE(
    "shared caches: readers have the scales of the cache they read, and do not run for them") {
  for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
    const Run found = run(recipe_ignoring({}), mode);
    check_copied(found);
    for (const auto& [layer, calls] : found.calls) CHECK(layer <= 2);
  }
}

TEST_CASE("shared caches: readers run where their queries are quantized, each with its own scale") {
  for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
    const Run found = run(recipe_ignoring({}, true), mode);
    check_copied(found);
    CHECK(found.calls.contains(5));
    for (size_t i = 3; i < 6; ++i) {
      REQUIRE(found.calibration.layers[i].q);
      CHECK(found.calibration.layers[i].q->scales[0].value !=
            found.calibration.layers[2].q->scales[0].value);
    }
  }
}

TEST_CASE("shared caches: scales from statistics alone are those of the run") {
  const Run found = run(recipe_ignoring({}), KvForward::kExact, true);
  const ModelConfig config = ModelFixture(kFixture).config;
  SilentDiagnostics silent;
  const Calibration derived = derive(
      found.statistics, resolve_plan(recipe_ignoring({}), config, silent), config, {}, silent);
  REQUIRE(derived.layers.size() == found.calibration.layers.size());
  for (size_t i = 0; i < derived.layers.size(); ++i)
    CHECK(derived.layers[i].k.scales[0].value == found.calibration.layers[i].k.scales[0].value);
}

TEST_CASE("shared caches: rounds of the exact pass give the statistics of one pass") {
  const Run found = run(recipe_ignoring({}), KvForward::kExact);
  ModelFixture fixture(kFixture);
  const std::vector<Sample> samples{{0, fixture.ids},
                                    {1, {fixture.ids.begin(), fixture.ids.begin() + 9}}};
  ExactRounds rounds(fixture.config, {});
  SilentDiagnostics silent;
  for (const Sample& sample : samples) {
    const std::vector<std::span<const TokenId>> ids{sample.ids};
    LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, ids, {}, silent);
    rounds.add(forward, 1);
  }
  const Statistics statistics = rounds.statistics(samples);
  REQUIRE(statistics.attention.size() == found.statistics.attention.size());
  for (size_t i = 0; i < statistics.attention.size(); ++i) {
    CHECK(statistics.attention[i].module == found.statistics.attention[i].module);
    for (size_t sample = 0; sample < 2; ++sample)
      CHECK(statistics.attention[i].k.ranges[sample].max ==
            found.statistics.attention[i].k.ranges[sample].max);
  }
}

TEST_CASE("shared caches: a recipe ignores a cache in all layers that read it, or in none") {
  const ModelConfig config = ModelFixture(kFixture).config;
  SilentDiagnostics silent;
  const auto message = [&](std::vector<std::string> ignored) {
    return test::message_of(
        [&] { resolve_plan(recipe_ignoring(std::move(ignored)), config, silent); });
  };
  const std::string source = config.attention_module(2), reader = config.attention_module(5);
  CHECK(test::contains(message({source}), reader + " reads the cache of " + source));
  CHECK(test::contains(message({reader}), "the recipe ignores " + reader + " alone"));
  CHECK(message({source, reader}) == "no error");
}
