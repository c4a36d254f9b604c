#include "eval/mixed_precision.h"

#include <algorithm>
#include <set>

#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

/// A model whose layers' KL add up, but for a part that all FP8 caches have.
struct MadeUp {
  std::vector<double> costs;
  double common = 0.0;
  int passes = 0, measured = 0;

  std::vector<int64_t> ranked() const {
    std::vector<LayerSensitivity> layers;
    for (size_t i = 0; i < costs.size(); ++i) layers.push_back({static_cast<int64_t>(i), costs[i]});
    rank(layers);
    std::vector<int64_t> numbers;
    for (const LayerSensitivity& layer : layers) numbers.push_back(layer.layer);
    return numbers;
  }
  double kl_of(const std::vector<int64_t>& kept) const {
    double kl = common;
    for (size_t i = 0; i < costs.size(); ++i)
      if (std::ranges::find(kept, static_cast<int64_t>(i)) == kept.end()) kl += costs[i];
    return kl;
  }
  ScoreLayers measure() {
    return [this](const std::vector<std::vector<int64_t>>& kept) {
      ++passes;
      std::vector<Likelihood> results;
      for (const auto& layers : kept) {
        Likelihood result;
        result.kl_mean = kl_of(layers);
        results.push_back(result);
        ++measured;
      }
      return results;
    };
  }
};

int64_t bytes_per_token(const ModelConfig& config, KvDType dtype,
                        const std::vector<LayerKvScales>& scales) {
  return static_cast<int64_t>(KvCache::bytes_per_token(config, dtype, scales));
}

}  // namespace

TEST_CASE("layers are ranked by their KL, equal ones by number") {
  std::vector<LayerSensitivity> layers{{0, 0.1}, {1, 0.3}, {2, 0.1}, {3, 0.2}};
  rank(layers);
  std::vector<int64_t> order;
  for (const auto& layer : layers) order.push_back(layer.layer);
  CHECK(order == std::vector<int64_t>{1, 3, 0, 2});
}

TEST_CASE("the fewest layers are kept that meet the budget") {
  MadeUp model{.costs = {1, 8, 2, 16, 4, 0.5, 0.25, 32, 0.125, 64}, .common = 0.0625};
  for (const double budget : {200.0, 100.0, 60.0, 31.0, 8.0, 4.0, 1.0, 0.3, 0.2}) {
    CAPTURE(budget);
    const auto ranked = model.ranked();
    size_t expected = 0;
    while (true) {
      std::vector<int64_t> kept;
      for (size_t i = 0; i < expected; ++i) kept.push_back(ranked[i]);
      if (model.kl_of(kept) <= budget) break;
      ++expected;
    }
    const MixedSearch found = find_kept_layers(ranked, budget, ranked.size(), model.measure());
    REQUIRE(found.proposed);
    const MixedCache& proposal = found.measured.at(*found.proposed);
    CHECK(proposal.kept.size() == expected);
    CHECK(*proposal.result.kl_mean <= budget);
    CHECK(std::ranges::is_sorted(proposal.kept));
    // One layer fewer was seen to be too few, or none was kept.
    if (expected > 0) {
      REQUIRE(*found.proposed > 0);
      CHECK(found.measured[*found.proposed - 1].kept.size() == expected - 1);
      CHECK(*found.measured[*found.proposed - 1].result.kl_mean > budget);
    }
  }
}

TEST_CASE("a budget that no FP8 layer meets proposes nothing") {
  MadeUp model{.costs = {1, 2, 3, 4, 5, 6}, .common = 0.5};
  const MixedSearch found = find_kept_layers(model.ranked(), 0.25, 6, model.measure());
  CHECK_FALSE(found.proposed);
  CHECK(found.measured.back().kept.size() == 5);
}

TEST_CASE("up to four layers are found in one pass, and no more than the limit is measured") {
  MadeUp model{.costs = {8, 4, 2, 1, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25}};
  for (const auto& [budget, expected] : {std::pair(20.0, 0), {10.0, 1}, {6.0, 2}, {2.5, 4}}) {
    model.passes = 0;
    const MixedSearch found = find_kept_layers(model.ranked(), budget, 6, model.measure());
    CHECK(std::ssize(found.measured.at(found.proposed.value()).kept) == expected);
    CHECK(model.passes == 1);
  }
  const MixedSearch none = find_kept_layers(model.ranked(), 0.75, 6, model.measure());
  CHECK_FALSE(none.proposed);
  CHECK(none.measured.back().kept.size() == 6);
}

TEST_CASE("thirty layers take four passes") {
  MadeUp model{.costs = std::vector<double>(30, 1.0)};
  const MixedSearch found = find_kept_layers(model.ranked(), 12.5, 30, model.measure());
  CHECK(found.measured.at(found.proposed.value()).kept.size() == 18);
  CHECK(model.passes <= 4);
}

TEST_CASE("without a budget a curve is measured") {
  MadeUp model{.costs = std::vector<double>(30, 1.0)};
  const MixedSearch found = score_layer_counts(model.ranked(), model.measure());
  CHECK_FALSE(found.proposed);
  REQUIRE(found.measured.size() == 8);
  CHECK(found.measured.front().kept.empty());
  std::set<size_t> numbers;
  for (const MixedCache& cache : found.measured) numbers.insert(cache.kept.size());
  CHECK(numbers.size() == 8);
  CHECK(*numbers.rbegin() < 30);
  MadeUp one{.costs = {1.0}};
  CHECK(score_layer_counts(one.ranked(), one.measure()).measured.size() == 1);
}

TEST_CASE("a cache's bytes count kept layers as 16 bits and no recurrent ones") {
  ModelFixture llama("llama");
  const ModelConfig& config = llama.config;
  const int64_t values =
      config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim;
  auto scales = unit_scales(config);
  CHECK(bytes_per_token(config, KvDType::kBFloat16, {}) == 2 * values);
  CHECK(bytes_per_token(config, KvDType::kFp8E4m3, scales) == values);
  scales[0].ignored = true;
  const int64_t kept = bytes_per_element(unquantized_cache_dtype(config));
  CHECK(bytes_per_token(config, KvDType::kFp8E4m3, scales) ==
        values / config.num_hidden_layers * (config.num_hidden_layers - 1 + kept));
  ModelFixture jamba("jamba");
  int64_t attending = 0;
  for (int64_t layer = 0; layer < jamba.config.num_hidden_layers; ++layer)
    attending += jamba.config.has_attention(layer) ? 1 : 0;
  CHECK(attending < jamba.config.num_hidden_layers);
  CHECK(bytes_per_token(jamba.config, KvDType::kFp8E5m2, unit_scales(jamba.config)) ==
        attending * 2 * jamba.config.num_key_value_heads * jamba.config.head_dim);
}
