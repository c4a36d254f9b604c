// Scales of K that are chosen by what they do to attention.
#include <algorithm>
#include <cmath>

#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "calib/scales/derive.h"
#include "forward/divided_forward.h"
#include "quant/observer.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

Recipe recipe_with(const std::string& observer, Strategy strategy = Strategy::kTensor) {
  QuantArgs scheme;
  scheme.type = QuantType::kFloat;
  scheme.strategy = strategy;
  scheme.observer = observer;
  Recipe recipe;
  recipe.modifiers.emplace_back().kv_cache_scheme = scheme;
  return recipe;
}

std::vector<Sample> samples_of(const ModelFixture& fixture, std::initializer_list<size_t> lengths) {
  std::vector<Sample> samples;
  for (const size_t length : lengths)
    samples.push_back(
        {std::ssize(samples),
         {fixture.ids.begin(),
          fixture.ids.begin() + static_cast<int64_t>(std::min(length, fixture.ids.size()))}});
  return samples;
}

struct RunOptions {
  KvForward mode = KvForward::kExact;
  int64_t compared_samples = 1, batch_tokens = 64;
  size_t devices = 1;
};

Calibration run(ModelFixture& fixture, const Recipe& recipe, const std::vector<Sample>& samples,
                const RunOptions& options) {
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  SilentDiagnostics silent;
  std::vector<std::unique_ptr<Backend>> owned;
  std::vector<Backend*> devices{fixture.backend.get()};
  while (devices.size() < options.devices)
    devices.push_back(owned.emplace_back(kBackends.at("reference")({.num_threads = 1})).get());
  DividedForward forward(fixture.config, fixture.weights, devices, ids,
                         {.batch_tokens = options.batch_tokens}, silent);
  const QuantPlan plan = resolve_plan(recipe, fixture.config, silent);
  return calibrate(forward, fixture.config, plan, samples,
                   {.kv_forward = options.mode, .compared_samples = options.compared_samples},
                   nullptr, silent);
}

/// The scale of the reference that is ours but for the last bits.
const Json& tried_with(const Json& layer, float scale) {
  const Json& tried = layer.at("tried");
  const auto found = std::ranges::find_if(tried, [&](const Json& one) {
    return std::fabs(one[0].get<double>() / static_cast<double>(scale) - 1.0) < 1e-4;
  });
  INFO("scale " << scale);
  REQUIRE(found != tried.end());
  return *found;
}

/// Error of the reference for all heads of K, or one.
double error_of(const Json& tried, std::optional<size_t> head) {
  return head ? tried[2].at(*head).get<double>() : tried[1].get<double>();
}

/// Whether the chosen scale is the reference's best. Two candidates whose errors are nearer than
/// sums in float32, or a value between two codes, are both.
void check_choice(const Json& layer, float chosen, std::optional<size_t> head) {
  double least = error_of(layer.at("tried")[0], head);
  for (const Json& tried : layer.at("tried")) least = std::min(least, error_of(tried, head));
  CHECK(error_of(tried_with(layer, chosen), head) <= 1.02 * least);
}

void check_same(const Calibration& a, const Calibration& b) {
  REQUIRE(a.layers.size() == b.layers.size());
  for (size_t layer = 0; layer < a.layers.size(); ++layer)
    for (const auto side : {&AttentionCalibration::k, &AttentionCalibration::v}) {
      const auto &one = a.layers[layer].*side, &other = b.layers[layer].*side;
      CHECK(std::ranges::equal(one.scales, other.scales, {}, &Scale::value, &Scale::value));
      CHECK(one.num_saturated == other.num_saturated);
    }
}

}  // namespace

TEST_CASE("attention_mse takes the scale with which transformers' attention is least wrong") {
  const Json expected =
      parse_json(read_text(test::tests_folder() / "fixtures" / "attention_choice.json"));
  size_t moved = 0;
  for (const auto& [name, layers] : expected.at("models").items()) {
    ModelFixture fixture(name);
    const std::vector<Sample> samples{{0, fixture.ids}};
    const Calibration chosen = run(fixture, recipe_with("attention_mse"), samples, {});
    const Calibration extreme = run(fixture, recipe_with("static_minmax"), samples, {});
    REQUIRE(!chosen.layers.empty());
    for (size_t i = 0; i < chosen.layers.size(); ++i) {
      const AttentionCalibration& layer = chosen.layers[i];
      INFO(name << ", layer " << layer.layer);
      check_choice(layers.at(static_cast<size_t>(layer.layer)), layer.k.scales.at(0).value, {});
      CHECK(layer.v.scales[0].value == extreme.layers[i].v.scales[0].value);
      CHECK(sum_of(layer.damage->calibrated).error <=
            sum_of(extreme.layers[i].damage->calibrated).error);
      if (layer.k.scales[0].value != extreme.layers[i].k.scales[0].value) ++moved;
    }
  }
  CHECK(moved >= 4);
}

TEST_CASE("attention_mse chooses each head's scale by the heads that read it") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  const Strategy by_head = Strategy::kAttnHead;
  const Calibration chosen = run(fixture, recipe_with("attention_mse", by_head), samples, {});
  const Calibration extreme = run(fixture, recipe_with("static_minmax", by_head), samples, {});
  for (size_t i = 0; i < chosen.layers.size(); ++i) {
    const AttentionCalibration &layer = chosen.layers[i], &other = extreme.layers[i];
    const auto heads = static_cast<size_t>(fixture.config.cache(layer.layer).heads);
    REQUIRE(layer.k.scales.size() == heads);
    REQUIRE(heads > 1);
    const size_t readers = layer.damage->calibrated.size() / heads;
    for (size_t head = 0; head < heads; ++head) {
      const auto error = [&](const AttentionCalibration& of) {
        return sum_of(std::span(of.damage->calibrated).subspan(head * readers, readers)).error;
      };
      CHECK(error(layer) <= error(other));
    }
  }
}

TEST_CASE("attention_mse: batches, devices and the mode's passes change no scale") {
  for (const std::string name : {"llama", "gemma4_e2b", "deepseek_v2", "nemotron_h"})
    for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
      INFO(name);
      ModelFixture fixture(name, "reference");
      const std::vector<Sample> samples = samples_of(fixture, {17, 9, 20, 5});
      const Recipe recipe = recipe_with("attention_mse");
      const Calibration one = run(fixture, recipe, samples, {.mode = mode, .compared_samples = 3});
      check_same(one, run(fixture, recipe, samples,
                          {.mode = mode, .compared_samples = 3, .batch_tokens = 20}));
      check_same(
          one, run(fixture, recipe, samples, {.mode = mode, .compared_samples = 3, .devices = 3}));
    }
}

TEST_CASE("attention_mse: readers of a cache and a latent's two parts share the scales chosen") {
  for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
    ModelFixture shared("gemma4_e2b");
    const Calibration read =
        run(shared, recipe_with("attention_mse"), samples_of(shared, {20, 9}), {.mode = mode});
    size_t readers = 0;
    for (const AttentionCalibration& layer : read.layers) {
      const int64_t source = shared.config.layer(layer.layer).cache_layer;
      const auto found = std::ranges::find(read.layers, source, &AttentionCalibration::layer);
      REQUIRE(found != read.layers.end());
      CHECK(layer.k.scales[0].value == found->k.scales[0].value);
      CHECK(layer.v.scales[0].value == found->v.scales[0].value);
      if (source != layer.layer) ++readers;
    }
    CHECK(readers == 3);

    ModelFixture latent("deepseek_v2");
    const Calibration tied =
        run(latent, recipe_with("attention_mse"), samples_of(latent, {20, 9}), {.mode = mode});
    for (const AttentionCalibration& layer : tied.layers)
      CHECK(layer.k.scales.at(0).value == layer.v.scales.at(0).value);
  }
}

TEST_CASE("attention_mse: statistics do not suffice") {
  ModelFixture fixture("llama");
  SilentDiagnostics silent;
  check_statistics_suffice(resolve_plan(recipe_with("mse"), fixture.config, silent));
  CHECK(test::message_of([&] {
          check_statistics_suffice(
              resolve_plan(recipe_with("attention_mse"), fixture.config, silent));
        }) ==
        "observer 'attention_mse' of model.layers.0.self_attn judges scales by attention, which "
        "statistics do not hold; expected another observer, or kvcal calibrate, which runs the "
        "model");
}
