#include "calib/summary/scale_summary.h"

#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

constexpr uint64_t kSmall = 999;  ///< values of 1.0 beside each head's largest

KvTensorCalibration side_of(std::vector<float> largest, std::vector<Scale> scales) {
  KvTensorCalibration side{.scales = std::move(scales)};
  for (const float value : largest) {
    MagnitudeHistogram histogram;
    histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(1.0f))] = kSmall;
    ++histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(value))];
    side.head_histograms.push_back(histogram);
    side.head_ranges.push_back({-value, value});
    side.num_values += kSmall + 1;
  }
  return side;
}

AttentionCalibration layer_of(int64_t layer, KvTensorCalibration k, KvTensorCalibration v) {
  AttentionCalibration one;
  one.layer = layer;
  one.module = "model.layers." + std::to_string(layer) + ".self_attn";
  one.k = std::move(k);
  one.v = std::move(v);
  return one;
}

Calibration calibration_of(const ModelConfig& config, std::vector<AttentionCalibration> layers) {
  Calibration calibration;
  calibration.num_hidden_layers = config.num_hidden_layers;
  calibration.layers = std::move(layers);
  return calibration;
}

void set_growth(KvTensorCalibration& side, std::vector<float> amax) {
  AmaxConvergence& seen = side.convergence;
  seen.num_samples = {1, 2, 4, 8, 10};
  for (const float value : amax) seen.running.push_back({value});
}

}  // namespace

TEST_CASE("scale_summary: scale 1.0 that clips says how much, and where") {
  const ModelFixture fixture("llama");
  const Scale fine{0.01f};
  const auto summary = summarize_scales(
      calibration_of(fixture.config,
                     {layer_of(0, side_of({4.0f, 4.0f}, {fine}), side_of({4.0f, 4.0f}, {fine})),
                      layer_of(1, side_of({4.0f, 640.0f}, {fine, Scale{2.0f}}),
                               side_of({4.0f, 4.0f}, {fine}))}),
      fixture.config, 512);
  REQUIRE(summary);
  CHECK(summary->unit == UnitScale::kClips);
  CHECK(summary->clipped_v.layers.empty());
  REQUIRE(summary->clipped_k.layers == std::vector<int64_t>{1});
  // One of the 2000 values of layer 1.
  CHECK(summary->clipped_k.share == Approx(0.0005));
  CHECK(unit_scale_text(*summary) == "would clip 0.05 % of K in layer 1: keep these scales");
  CHECK(summary->layers[1].k.calibrated.clipped == 0);
  const Json json = to_json(*summary);
  CHECK(json.at("unit_scale").at("verdict") == "clips");
  CHECK(json.at("errors").size() == 2);
  const LayerCache& cache = fixture.config.cache(0);
  CHECK(summary->cache_bytes_fp8 ==
        static_cast<uint64_t>(fixture.config.num_hidden_layers * cache.width()));
}

TEST_CASE("scale_summary: scale 1.0 is coarse where values are small, and as good where not") {
  const ModelFixture fixture("llama");
  KvTensorCalibration tiny = side_of({0.001f}, {Scale{0.001f / 448}});
  MagnitudeHistogram& histogram = tiny.head_histograms[0];
  histogram.counts.fill(0);
  histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(0.001f))] = 5;
  // A power of two rounds as 1.0 does.
  const KvTensorCalibration plain = side_of({4.0f}, {Scale{0x1p-6f}});
  const auto coarse = summarize_scales(calibration_of(fixture.config, {layer_of(0, plain, tiny)}),
                                       fixture.config, 512);
  REQUIRE(coarse);
  CHECK(coarse->unit == UnitScale::kCoarse);
  CHECK(coarse->unit_error_ratio > 5);
  CHECK(unit_scale_text(*coarse).starts_with("would clip nothing, but its error is up to "));
  const auto good = summarize_scales(calibration_of(fixture.config, {layer_of(0, plain, plain)}),
                                     fixture.config, 512);
  REQUIRE(good);
  CHECK(good->unit == UnitScale::kAsGood);
  CHECK(unit_scale_text(*good) ==
        "has the range for these K and V: it clips nothing and rounds no coarser");
}

TEST_CASE("scale_summary: scale 1.0 says how much room it leaves for other text") {
  const ModelFixture fixture("llama");
  const Scale fine{0.01f};
  const auto summary = summarize_scales(
      calibration_of(fixture.config,
                     {layer_of(0, side_of({4.0f, 32.0f}, {fine}), side_of({4.0f, 2.0f}, {fine})),
                      layer_of(1, side_of({8.0f, 4.0f}, {fine}), side_of({1.0f, 4.0f}, {fine}))}),
      fixture.config, 512);
  REQUIRE(summary);
  CHECK(summary->margin.largest_k == 32);
  CHECK(summary->margin.largest_v == 4);
  CHECK(summary->margin.least_head_k == 4);
  CHECK(summary->margin.least_head_v == 1);
  CHECK(summary->margin.least_code == 0x1p-9);
  CHECK(unit_margin_text(summary->margin) ==
        "largest K 32 and V 4, 14 times below 448; the head with the smallest values reaches 1, "
        "512 times above the smallest code");
  CHECK(unit_margin_text({.largest_k = 640,
                          .largest_v = 2,
                          .least_head_k = 3,
                          .least_head_v = 0.001,
                          .largest_code = 448,
                          .least_code = 0x1p-9}) ==
        "largest K 640 and V 2, over 448; the head with the smallest values reaches 0.001, under "
        "the smallest code, 0.00195");
  CHECK(to_json(*summary).at("unit_scale").at("margin").at("k_largest") == 32);
}

TEST_CASE("scale_summary: growth is that of the samples after the first half") {
  const ModelFixture fixture("llama");
  const Scale fine{0.01f};
  AttentionCalibration first = layer_of(0, side_of({4.0f}, {fine}), side_of({4.0f}, {fine}));
  AttentionCalibration second = layer_of(1, side_of({4.0f}, {fine}), side_of({4.0f}, {fine}));
  set_growth(first.k, {1, 1, 2, 2.2f, 2.2f});
  set_growth(second.v, {1, 2, 3, 3, 3.75f});
  const auto summary =
      summarize_scales(calibration_of(fixture.config, {first, second}), fixture.config, 512);
  REQUIRE(summary);
  REQUIRE(summary->growth);
  CHECK(summary->growth->ratio == Approx(0.25));
  CHECK(summary->growth->layer == 1);
  CHECK_FALSE(summary->growth->is_key);
  CHECK(summary->growth->from_samples == 4);
  CHECK(summary->growth->num_samples == 10);
}

TEST_CASE("scale_summary: nothing is said of scales without statistics") {
  const ModelFixture fixture("llama");
  KvTensorCalibration bare{.scales = {Scale{0.5f}}};
  CHECK_FALSE(summarize_scales(calibration_of(fixture.config, {layer_of(0, bare, bare)}),
                               fixture.config, 512));
  CHECK_FALSE(summarize_scales(calibration_of(fixture.config, {}), fixture.config, 512));
}

TEST_CASE(
    "scale_summary: the predicted KL is twice the mean over layers, and 0 for those in 16 bits") {
  const ModelFixture fixture("llama");
  REQUIRE(fixture.config.cached_layers().size() == 2);
  const KvTensorCalibration side = side_of({4.0f}, {Scale{0.01f}});
  AttentionCalibration first = layer_of(0, side, side), second = layer_of(1, side, side);
  const auto predicted = [&](std::vector<AttentionError> AttentionDamage::*scales) {
    return predicted_damage(calibration_of(fixture.config, {first, second}), fixture.config,
                            scales);
  };
  CHECK_FALSE(predicted(&AttentionDamage::calibrated));
  first.damage = AttentionDamage{.calibrated = {{.kl = 2, .queries = 10}, {.kl = 0, .queries = 10}},
                                 .unit = {{.kl = 8, .queries = 10}, {.kl = 0, .queries = 10}}};
  CHECK_FALSE(predicted(&AttentionDamage::calibrated));
  second.damage = AttentionDamage{.calibrated = {{.kl = 1, .queries = 10}},
                                  .unit = {{.kl = -1, .queries = 10}}};
  CHECK(predicted(&AttentionDamage::calibrated)->kl_mean == Approx(0.2));
  CHECK(predicted(&AttentionDamage::unit)->kl_mean == Approx(0.3));
  first.ignored = true;
  CHECK(predicted(&AttentionDamage::calibrated)->kl_mean == Approx(0.1));
  CHECK(predicted(&AttentionDamage::unit)->kl_mean == 0);
  first.ignored = false;
  const auto summary =
      summarize_scales(calibration_of(fixture.config, {first, second}), fixture.config, 512);
  REQUIRE(summary);
  const Json json = to_json(*summary).at("predicted");
  CHECK(json.at("calibrated").at("verdict") == "do_not_serve");
  CHECK(json.at("unit").at("verdict") == "do_not_serve");
  CHECK_FALSE(json.at("unit").contains("needs_more_text"));
}
