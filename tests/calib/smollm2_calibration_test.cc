// A real model against transformers in float32: reference/smollm2.py.
#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/demo_model.h"
#include "support/folders.h"
#include "support/model_fixture.h"

using namespace kvcal;

namespace {

void check_amax(const KvTensorCalibration& seen, const Json& expected, double tolerance) {
  REQUIRE(seen.head_ranges.size() == expected.size());
  for (size_t head = 0; head < expected.size(); ++head)
    CHECK(test::relative_error(static_cast<double>(seen.head_ranges[head].amax().value),
                               expected[head]) <= tolerance);
}

}  // namespace

TEST_CASE("SmolLM2: K and V extremes of every layer and head equal transformers'", "[slow]") {
  const ModelDir model_dir(test::demo_model());
  const ModelConfig config = read_model_config(model_dir);
  const Weights weights(model_dir, config);
  const Json expected =
      parse_json(read_text(test::tests_folder() / "fixtures" / "smollm2" / "expected.json"))
          .at("calibration");
  std::vector<Sample> samples;
  std::vector<std::span<const TokenId>> ids;
  for (const Json& list : expected.at("ids"))
    samples.push_back({static_cast<int64_t>(samples.size()), list});
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  REQUIRE(samples.size() == 12);
  const Recipe recipe = parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float}}}}");
  for (const auto& [type, tolerance] :
       {std::pair{ComputeType::kFloat32, 1e-4}, std::pair{ComputeType::kBFloat16, 2e-2}}) {
    INFO(name_of(type));
    const auto backend = kBackends.at("cpu")({.num_threads = 2});
    if (!backend->supports(type)) continue;
    SilentDiagnostics silent;
    LayerwiseForward forward(config, weights, *backend, ids, {.compute_type = type}, silent);
    const QuantPlan plan = resolve_plan(recipe, config, silent);
    const Calibration calibration = calibrate(forward, config, plan, samples,
                                              {.kv_forward = KvForward::kExact}, nullptr, silent);
    REQUIRE(calibration.layers.size() == 30);
    for (size_t layer = 0; layer < calibration.layers.size(); ++layer) {
      INFO("layer " << layer);
      check_amax(calibration.layers[layer].k, expected.at("k_head_amax")[layer], tolerance);
      check_amax(calibration.layers[layer].v, expected.at("v_head_amax")[layer], tolerance);
    }
  }
}
