// Layers whose caches have shapes of their own: whoever stores, counts, scales or shows K and V
// asks the layer.
#include "calib/scales/derive.h"
#include "forward/kv_cache.h"
#include "inspect/inspection.h"
#include "inspect/properties.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

/// Three layers: 2 heads of 8, 1 head of 16, and 4 heads with V half as wide as K.
ModelConfig mixed_config() {
  ModelConfig config = test::ModelFixture("llama").config;
  config.num_hidden_layers = 3;
  config.layers.resize(3);
  config.layers[0].cache = {.heads = 2, .k_dim = 8, .v_dim = 8};
  config.layers[1].cache = {.heads = 1, .k_dim = 16, .v_dim = 16};
  config.layers[2].cache = {.heads = 4, .k_dim = 8, .v_dim = 4};
  return config;
}

QuantPlan plan_by_head(const ModelConfig& config) {
  QuantPlan plan;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    QuantArgs args;
    args.strategy = Strategy::kAttnHead;
    plan.attention.push_back({.module = config.attention_module(layer),
                              .layer = layer,
                              .ignored = false,
                              .kv = args,
                              .q = {}});
  }
  return plan;
}

TensorStatistics statistics_of(int64_t heads) {
  TensorStatistics statistics{.heads = heads, .ranges = {}, .histograms = {}};
  statistics.ranges.assign(static_cast<size_t>(heads), {-1.0f, 1.0f});
  statistics.histograms.resize(static_cast<size_t>(heads));
  return statistics;
}

}  // namespace

TEST_CASE("layer caches: a cache of all layers has the bytes of each layer's shape") {
  const ModelConfig config = mixed_config();
  CHECK(KvCache::bytes_per_token(config, KvDType::kFloat32, {}) == 4 * (32 + 32 + 48));
  const CacheSize size = cache_size(config);
  CHECK(size.layers == 3);
  CHECK(size.values_per_token == 32 + 32 + 48);
  REQUIRE(size.shapes.size() == 3);
  CHECK(size.shapes[2].cache == config.cache(2));
  CHECK(size.shapes[2].layers == std::vector<int64_t>{2});
}

TEST_CASE("layer caches: layers of one shape are one entry") {
  ModelConfig config = mixed_config();
  config.layers[2].cache = config.layers[0].cache;
  const CacheSize size = cache_size(config);
  REQUIRE(size.shapes.size() == 2);
  CHECK(size.shapes[0].layers == std::vector<int64_t>{0, 2});
}

TEST_CASE("layer caches: scales by head are as many as the layer's heads") {
  const ModelConfig config = mixed_config();
  const Calibration planned = planned_calibration(plan_by_head(config), config, KvDType::kFp8E4m3);
  REQUIRE(planned.layers.size() == 3);
  for (const AttentionCalibration& layer : planned.layers) {
    CHECK(std::ssize(layer.k.scales) == config.cache(layer.layer).heads);
    CHECK(std::ssize(layer.v.scales) == config.cache(layer.layer).heads);
  }
}

TEST_CASE("layer caches: statistics of another number of heads are refused with the module") {
  const ModelConfig config = mixed_config();
  const QuantPlan plan = plan_by_head(config);
  Statistics statistics;
  for (const PlannedAttention& planned : plan.attention) {
    const int64_t heads = config.cache(planned.layer).heads;
    statistics.attention.push_back(
        {.module = planned.module, .k = statistics_of(heads), .v = statistics_of(heads)});
  }
  SilentDiagnostics silent;
  const Calibration found = derive(statistics, plan, config, {}, silent);
  CHECK(found.layers[2].k.scales.size() == 4);
  statistics.attention[1].v = statistics_of(2);
  CHECK(test::contains(test::message_of([&] { derive(statistics, plan, config, {}, silent); }),
                       "2 heads of V of " + plan.attention[1].module + ", the model has 1"));
}

}  // namespace kvcal
