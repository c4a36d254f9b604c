// A latent without a rotated key: engines keep K alone, so V has K's scale and statistics.
#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "calib/scales/derive.h"
#include "calib/summary/cache_loss.h"
#include "calib/summary/scale_summary.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

Recipe recipe_of(const std::string& observer) {
  QuantArgs scheme;
  scheme.type = QuantType::kFloat;
  scheme.strategy = Strategy::kTensor;
  scheme.observer = observer;
  Recipe recipe;
  recipe.modifiers.emplace_back().kv_cache_scheme = scheme;
  return recipe;
}

struct Run {
  Calibration calibration;
  Statistics statistics;
};

Run run(ModelFixture& fixture, const Recipe& recipe, KvForward mode) {
  const std::vector<Sample> samples{{0, fixture.ids},
                                    {1, {fixture.ids.begin(), fixture.ids.begin() + 9}}};
  const std::vector<std::span<const TokenId>> ids{samples[0].ids, samples[1].ids};
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, ids, {}, silent);
  const QuantPlan plan = resolve_plan(recipe, fixture.config, silent);
  Run result;
  result.calibration = calibrate(forward, fixture.config, plan, samples, {.kv_forward = mode},
                                 &result.statistics, silent);
  return result;
}

float scale_of(const KvTensorCalibration& side) {
  REQUIRE(side.scales.size() == 1);
  return side.scales[0].value;
}

}  // namespace

TEST_CASE("latent calibration: V of no width has K's scale") {
  ModelFixture fixture("glm5_next");
  for (const std::string observer : {"static_minmax", "attention_mse"})
    for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
      INFO(observer);
      const Recipe recipe = recipe_of(observer);
      const Run found = run(fixture, recipe, mode);
      const std::vector<AttentionCalibration>& layers = found.calibration.layers;
      REQUIRE(layers.size() == 2);
      for (const AttentionCalibration& layer : layers) {
        CHECK(scale_of(layer.k) > 1e-4f);
        CHECK(scale_of(layer.v) == scale_of(layer.k));
        CHECK(layer.v.range().amax().value == layer.k.range().amax().value);
      }
      SilentDiagnostics silent;
      const Calibration derived =
          derive(found.statistics, resolve_plan(recipe, fixture.config, silent), fixture.config, {},
                 silent);
      for (size_t i = 0; i < layers.size(); ++i) {
        CHECK(scale_of(derived.layers[i].k) == scale_of(layers[i].k));
        CHECK(scale_of(derived.layers[i].v) == scale_of(layers[i].v));
      }
    }
}

TEST_CASE("latent calibration: the predicted loss is that of K alone") {
  ModelFixture fixture("glm5_next");
  const Run found = run(fixture, recipe_of("static_minmax"), KvForward::kExact);
  std::vector<LayerKvScales> scales(4);
  for (const AttentionCalibration& layer : found.calibration.layers)
    scales[static_cast<size_t>(layer.layer)] = {.k = layer.k.scales, .v = layer.v.scales};
  const auto losses = CacheLosses(found.calibration, fixture.config).of(KvDType::kFp8E4m3, scales);
  REQUIRE(losses.size() == 2);
  for (const LayerCacheLoss& loss : losses) {
    CHECK(loss.k.channel_error > 0.0);
    CHECK(loss.v.channel_error == 0.0);
  }
}
