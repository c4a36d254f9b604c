#include "calib/scale_summary.h"

#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

constexpr uint64_t kSmall = 999;  ///< values of 1.0 beside each head's largest

KvTensorCalibration side_of(std::vector<float> largest, std::vector<Scale> scales) {
  KvTensorCalibration side{.statistics = {}, .scales = std::move(scales)};
  for (const float value : largest) {
    MagnitudeHistogram histogram;
    histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(1.0f))] = kSmall;
    ++histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(value))];
    side.statistics.head_histograms.push_back(histogram);
    side.statistics.head_ranges.push_back({-value, value});
    side.statistics.num_values += kSmall + 1;
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
  AmaxConvergence& seen = side.statistics.convergence;
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
  MagnitudeHistogram& histogram = tiny.statistics.head_histograms[0];
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
  KvTensorCalibration bare{.statistics = {}, .scales = {Scale{0.5f}}};
  CHECK_FALSE(summarize_scales(calibration_of(fixture.config, {layer_of(0, bare, bare)}),
                               fixture.config, 512));
  CHECK_FALSE(summarize_scales(calibration_of(fixture.config, {}), fixture.config, 512));
}
