// Where the largest magnitude is: a sample that ends before it has a smaller one.
#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

Calibration run(ModelFixture& fixture, const std::vector<Sample>& samples) {
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  SilentDiagnostics silent;
  const Recipe recipe = parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float, num_bits: 8, "
      "strategy: tensor}}}}");
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, ids,
                           {.batch_tokens = 8}, silent);
  return calibrate(forward, fixture.config, resolve_plan(recipe, fixture.config, silent), samples,
                   {}, nullptr, silent);
}

/// The largest magnitude of the first `length` tokens of the sample; 0 for none.
float amax_before(ModelFixture& fixture, const Sample& sample, size_t length, size_t layer,
                  KvTensorCalibration AttentionCalibration::*side) {
  if (length == 0) return 0.0f;
  Sample start = sample;
  start.ids.resize(std::min(length, start.ids.size()));
  // In the first layer K and V of a token do not depend on those behind it.
  return (run(fixture, {start}).layers[layer].*side).range().amax().value;
}

}  // namespace

TEST_CASE("amax place: the tokens named have the largest magnitude of the first layer") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{
      {.index = 0, .ids = {1, 9, 33, 71, 2, 8, 5, 60, 14}},
      {.index = 1, .ids = {62, 50, 8}},
      {.index = 2, .ids = {36, 23, 10, 40, 5, 12, 57, 39, 41, 56, 54, 45, 24}}};
  const Calibration calibration = run(fixture, samples);
  for (const auto side : {&AttentionCalibration::k, &AttentionCalibration::v}) {
    const KvTensorCalibration& found = calibration.layers[0].*side;
    REQUIRE(found.amax_place);
    const AmaxPlace& place = *found.amax_place;
    REQUIRE(place.sample < std::ssize(samples));
    const Sample& sample = samples[static_cast<size_t>(place.sample)];
    INFO("sample " << place.sample << ", positions " << place.first << " to " << place.last);
    CHECK(place.first < std::ssize(sample.ids));
    CHECK(place.first <= place.last);
    const auto before = [&](int64_t length) {
      return amax_before(fixture, sample, static_cast<size_t>(length), 0, side);
    };
    CHECK(before(place.last + 1) == found.range().amax().value);
    CHECK(before(place.first) < found.range().amax().value);
  }
}

TEST_CASE("amax place: it is one token at the beginning of a sample") {
  ModelFixture fixture("llama");
  for (const AttentionCalibration& layer :
       run(fixture, {{.index = 0, .ids = {7, 3}}, {.index = 1, .ids = {9, 1, 4}}}).layers)
    for (const KvTensorCalibration* side : {&layer.k, &layer.v}) {
      REQUIRE(side->amax_place);
      CHECK(side->amax_place->is_one_token());
      CHECK(side->amax_place->text.empty());  // of the run, which has the tokenizer
    }
}
