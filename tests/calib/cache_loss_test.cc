#include "calib/summary/cache_loss.h"

#include <cmath>
#include <random>

#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

/// K and V of normally distributed values, with a share of outliers of one size.
struct Observed {
  explicit Observed(const ModelConfig& config, double outliers = 0.0, float size = 1000.0f) {
    calibration.num_hidden_layers = config.num_hidden_layers;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      AttentionCalibration& one = calibration.layers.emplace_back();
      one.layer = layer;
      for (KvTensorCalibration* side : {&one.k, &one.v})
        for (int64_t head = 0; head < config.cache(layer).heads; ++head) {
          MagnitudeHistogram& seen = side->head_histograms.emplace_back();
          Range& range = side->head_ranges.emplace_back();
          for (int i = 0; i < 20000; ++i) {
            const float x = i < outliers * 20000 ? size : normal(random);
            ++seen.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(x))];
            range.fold({x, x});
          }
        }
    }
  }
  Calibration calibration;
};

std::vector<LayerKvScales> same_scales(const ModelConfig& config, float scale) {
  return std::vector<LayerKvScales>(static_cast<size_t>(config.num_hidden_layers),
                                    {.k = {{scale}}, .v = {{scale}}});
}

std::vector<LayerCacheLoss> losses_of(const Observed& seen, const ModelFixture& fixture,
                                      const CacheType& type,
                                      const std::vector<LayerKvScales>& scales) {
  return CacheLosses(seen.calibration, fixture.config).of(type, scales);
}

/// Errors of FP8 codes, found in the histograms without a draw.
CodeErrors fp8_errors(const KvTensorCalibration& seen, float scale) {
  CodeErrors errors;
  for (size_t head = 0; head < seen.head_histograms.size(); ++head)
    errors.add(code_errors(seen.head_histograms[head], seen.head_ranges[head].amax(), Scale{scale},
                           fp8::Format::kE4m3Fn));
  return errors;
}

double error_of(const std::vector<LayerCacheLoss>& losses) {
  REQUIRE(!losses.empty());
  return losses[0].k.codes.relative_error();
}

}  // namespace

TEST_CASE("cache loss: FP8's is that of its codes, of every value") {
  const ModelFixture fixture("llama");
  const Observed seen(fixture.config);
  const auto losses =
      losses_of(seen, fixture, KvDType::kFp8E4m3, same_scales(fixture.config, 0.01f));
  REQUIRE(losses.size() == 2);
  const CodeErrors expected = fp8_errors(seen.calibration.layers[0].k, 0.01f);
  CHECK(losses[0].k.codes.values == expected.values);
  CHECK(losses[0].k.codes.relative_error() == Approx(expected.relative_error()).epsilon(0.1));
  CHECK(expected.clipped > 0);
  CHECK(losses[0].k.codes.clipped == Approx(expected.clipped).epsilon(0.1));
}

TEST_CASE("cache loss: values over the largest code are clipped, small ones become zero") {
  const ModelFixture fixture("llama");
  const Observed seen(fixture.config, 0.001);
  const auto unit = losses_of(seen, fixture, KvDType::kFp8E4m3, same_scales(fixture.config, 1.0f));
  CHECK(unit[0].k.codes.clipped / unit[0].k.codes.values == Approx(0.001).epsilon(0.01));
  const CodeErrors expected = fp8_errors(seen.calibration.layers[0].k, 1.0f);
  CHECK(expected.to_zero > 0);
  CHECK(unit[0].k.codes.to_zero == Approx(expected.to_zero).epsilon(0.1));
  const auto int8 =
      losses_of(seen, fixture, CacheFormat::kInt8, same_scales(fixture.config, 1000.0f / 127));
  CHECK(int8[0].k.codes.clipped == 0);
  CHECK(int8[0].k.codes.to_zero / int8[0].k.codes.values > 0.99);  // half of a step is 3.9
}

TEST_CASE("cache loss: caches of more bits, and finer scales, lose less") {
  const ModelFixture fixture("llama");
  const Observed seen(fixture.config);
  const std::vector<LayerKvScales> none(2);
  const auto loss = [&](const CacheType& type, const std::vector<LayerKvScales>& scales) {
    return expected_loss(losses_of(seen, fixture, type, scales));
  };
  const double int8 = loss(CacheFormat::kInt8PerTokenHead, none);
  const double fp8 = loss(CacheFormat::kFp8PerTokenHead, none);
  const double e5m2 = loss(KvDType::kFp8E5m2, same_scales(fixture.config, 1.0f));
  CHECK(int8 < fp8);
  CHECK(fp8 < e5m2);
  CHECK(loss(CacheFormat::kInt8PerTokenHead, none) == int8);  // the same draw
  CHECK(error_of(losses_of(seen, fixture, CacheFormat::kInt8PerTokenHead, none)) > 0.001);
}

TEST_CASE("cache loss: outliers do not hide what other channels lose") {
  const ModelFixture fixture("llama");
  // One of eight channels is a hundred times the others.
  const Observed seen(fixture.config, 0.125, 100.0f);
  const std::vector<LayerKvScales> none(2);
  const auto loss = [&](const CacheType& type, const std::vector<LayerKvScales>& scales) {
    return losses_of(seen, fixture, type, scales)[0].k;
  };
  const SideLoss int8 = loss(CacheFormat::kInt8PerTokenHead, none);
  const SideLoss fp8 = loss(CacheFormat::kFp8PerTokenHead, none);
  CHECK(int8.codes.relative_error() < 0.01);
  CHECK(int8.channel_error > 10 * fp8.channel_error);
}
