#include "calib/calibrator.h"

#include <algorithm>

#include "calib/plan/resolve_plan.h"
#include "forward/divided_forward.h"
#include "quant/observer.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

Recipe recipe_with(const std::string& observer, Strategy strategy,
                   double averaging_constant = 0.01) {
  QuantArgs scheme;
  scheme.type = QuantType::kFloat;
  scheme.strategy = strategy;
  scheme.observer = observer;
  if (observer == "minmax") scheme.observer_kwargs["averaging_constant"] = averaging_constant;
  Recipe recipe;
  recipe.modifiers.emplace_back().kv_cache_scheme = scheme;
  return recipe;
}

std::vector<Sample> samples_of(const Json& lists) {
  std::vector<Sample> samples;
  for (const Json& list : lists)
    samples.push_back({static_cast<int64_t>(samples.size()), list.get<std::vector<TokenId>>()});
  return samples;
}

/// Of an INT8 cache.
Recipe int8_recipe(Strategy strategy, const std::string& observer = "static_minmax") {
  Recipe recipe = recipe_with(observer, strategy);
  recipe.modifiers[0].kv_cache_scheme->type = QuantType::kInt;
  return recipe;
}

Calibration run(ModelFixture& fixture, const Recipe& recipe, const std::vector<Sample>& samples,
                KvForward mode, int64_t compared_samples = 0) {
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  SilentDiagnostics silent;
  LayerwiseForward forward(fixture.config, fixture.weights, *fixture.backend, ids,
                           {.batch_tokens = 64}, silent);
  const QuantPlan plan = resolve_plan(recipe, fixture.config, silent);
  return calibrate(forward, fixture.config, plan, samples,
                   {.kv_forward = mode, .compared_samples = compared_samples}, nullptr, silent);
}

void check_scales(const std::vector<Scale>& scales, const Json& expected) {
  REQUIRE(scales.size() == expected.size());
  for (size_t i = 0; i < scales.size(); ++i)
    CHECK(test::relative_error(static_cast<double>(scales[i].value), expected[i]) <= 1e-4);
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("exact scales equal llm-compressor's for every observer and strategy") {
  for (const std::string name : {"llama", "mistral_window"}) {
    const Json reference = parse_json(read_text(test::model_fixture(name) / "llmcompressor.json"));
    const std::vector<Sample> samples = samples_of(reference.at("ids"));
    REQUIRE(reference.at("runs").size() == 6);
    for (const Json& expected : reference.at("runs")) {
      const std::string observer = expected.at("observer"), strategy = expected.at("strategy");
      INFO(name << ", " << observer << ", " << strategy << ", "
                << expected.at("averaging_constant").get<double>());
      ModelFixture fixture(name);
      const Recipe recipe =
          recipe_with(observer, strategy == "tensor" ? Strategy::kTensor : Strategy::kAttnHead,
                      expected.at("averaging_constant"));
      const Calibration calibration = run(fixture, recipe, samples, KvForward::kExact);
      REQUIRE(calibration.layers.size() == expected.at("k_scale").size());
      for (size_t layer = 0; layer < calibration.layers.size(); ++layer) {
        check_scales(calibration.layers[layer].k.scales, expected.at("k_scale")[layer]);
        check_scales(calibration.layers[layer].v.scales, expected.at("v_scale")[layer]);
      }
    }
  }
}

TEST_CASE("the quantized forward leaves layer 0 as it is and moves later layers a little") {
  ModelFixture fixture("mistral_window");
  const Json reference =
      parse_json(read_text(test::model_fixture("mistral_window") / "llmcompressor.json"));
  const std::vector<Sample> samples = samples_of(reference.at("ids"));
  const Recipe recipe = recipe_with("static_minmax", Strategy::kTensor);
  const Calibration exact = run(fixture, recipe, samples, KvForward::kExact);
  const Calibration quantized = run(fixture, recipe, samples, KvForward::kQuantized);
  CHECK(quantized.layers[0].k.scales[0].value == exact.layers[0].k.scales[0].value);
  for (size_t layer = 1; layer < exact.layers.size(); ++layer) {
    const double error =
        test::relative_error(static_cast<double>(quantized.layers[layer].k.scales[0].value),
                             static_cast<double>(exact.layers[layer].k.scales[0].value));
    CHECK(error > 0.0);
    CHECK(error < 0.1);
  }
}

TEST_CASE("an observer that clips reports how much, static_minmax clips nothing") {
  ModelFixture fixture("llama");
  const Json reference = parse_json(read_text(test::model_fixture("llama") / "llmcompressor.json"));
  const std::vector<Sample> samples = samples_of(reference.at("ids"));
  for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
    const Calibration full =
        run(fixture, recipe_with("static_minmax", Strategy::kTensor), samples, mode);
    const Calibration last =
        run(fixture, recipe_with("memoryless_minmax", Strategy::kTensor), samples, mode);
    uint64_t clipped = 0;
    for (size_t layer = 0; layer < full.layers.size(); ++layer) {
      CHECK(full.layers[layer].k.num_saturated == 0);
      CHECK(full.layers[layer].v.num_saturated == 0);
      clipped +=
          last.layers[layer].k.num_saturated.value() + last.layers[layer].v.num_saturated.value();
    }
    CHECK(clipped > 0);
  }
}

TEST_CASE(
    "INT8 scales are those of E4M3 with another largest code, of channels at most their head's") {
  const Json reference = parse_json(read_text(test::model_fixture("llama") / "llmcompressor.json"));
  const std::vector<Sample> samples = samples_of(reference.at("ids"));
  for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
    const auto scales_with = [&](const Recipe& recipe) {
      ModelFixture fixture("llama");
      return run(fixture, recipe, samples, mode);
    };
    const Calibration fp8 = scales_with(recipe_with("static_minmax", Strategy::kAttnHead));
    const Calibration heads = scales_with(int8_recipe(Strategy::kAttnHead));
    const Calibration channels = scales_with(int8_recipe(Strategy::kChannel));
    CHECK(heads.kv_format.is_int8());
    REQUIRE(channels.layers.size() == fp8.layers.size());
    // Later layers of a quantized forward have read codes of another cache.
    const size_t compared = mode == KvForward::kExact ? fp8.layers.size() : 1;
    for (size_t layer = 0; layer < compared; ++layer)
      for (KvTensorCalibration AttentionCalibration::*side :
           {&AttentionCalibration::k, &AttentionCalibration::v}) {
        const KvTensorCalibration& of_heads = heads.layers[layer].*side;
        const KvTensorCalibration& of_channels = channels.layers[layer].*side;
        const size_t count = of_heads.head_ranges.size();
        REQUIRE(of_heads.scales.size() == count);
        REQUIRE(of_channels.scales.size() % count == 0);
        const size_t width = of_channels.scales.size() / count;
        CHECK(width > 1);
        for (size_t head = 0; head < count; ++head) {
          const Amax amax = of_heads.head_ranges[head].amax();
          CHECK(of_heads.scales[head].value == amax.value / 127.0f);
          CHECK((fp8.layers[layer].*side).scales[head].value == amax.value / 448.0f);
          float largest = 0.0f;
          for (size_t i = head * width; i < (head + 1) * width; ++i)
            largest = std::max(largest, of_channels.scales[i].value);
          CHECK(largest == of_heads.scales[head].value);
        }
        CHECK(of_channels.num_saturated == uint64_t{0});
      }
  }
}

TEST_CASE("what an INT8 observer clips is counted by head and by channel") {
  const Json reference = parse_json(read_text(test::model_fixture("llama") / "llmcompressor.json"));
  const std::vector<Sample> samples = samples_of(reference.at("ids"));
  for (const Strategy strategy : {Strategy::kTensor, Strategy::kChannel})
    for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
      ModelFixture fixture("llama");
      const Calibration found = run(fixture, int8_recipe(strategy, "minmax"), samples, mode);
      const KvTensorCalibration& k = found.layers[0].k;
      REQUIRE(k.num_saturated);
      CHECK(*k.num_saturated > 0);
      CHECK(*k.num_saturated < k.num_values / 10);
    }
}

TEST_CASE("a moving average of one sample is that sample") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  for (const double constant : {0.01, 0.3, 0.7}) {
    const Calibration moving = run(fixture, recipe_with("minmax", Strategy::kAttnHead, constant),
                                   samples, KvForward::kExact);
    const Calibration full =
        run(fixture, recipe_with("static_minmax", Strategy::kAttnHead), samples, KvForward::kExact);
    for (size_t layer = 0; layer < full.layers.size(); ++layer)
      for (size_t head = 0; head < full.layers[layer].k.scales.size(); ++head) {
        CHECK(moving.layers[layer].k.scales[head].value == full.layers[layer].k.scales[head].value);
        CHECK(moving.layers[layer].v.scales[head].value == full.layers[layer].v.scales[head].value);
      }
  }
}

TEST_CASE("histograms count every value once, under every head") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  const Calibration calibration =
      run(fixture, recipe_with("static_minmax", Strategy::kAttnHead), samples, KvForward::kExact);
  const auto per_head = static_cast<uint64_t>(fixture.config.head_dim) * fixture.ids.size();
  for (const AttentionCalibration& layer : calibration.layers) {
    REQUIRE(layer.k.head_histograms.size() == 2);
    for (const MagnitudeHistogram& histogram : layer.k.head_histograms) {
      uint64_t count = 0;
      for (const uint64_t bin : histogram.counts) count += bin;
      CHECK(count == per_head);
    }
    CHECK(layer.k.num_values == 2 * per_head);
  }
}

TEST_CASE("a latent cache has one scale for the latent and the rotated key") {
  for (const std::string name : {"deepseek_v2", "deepseek_v3_fp8"}) {
    ModelFixture fixture(name);
    const std::vector<Sample> samples{{0, fixture.ids}};
    const Calibration calibration =
        run(fixture, recipe_with("static_minmax", Strategy::kTensor), samples, KvForward::kExact);
    CHECK(calibration.is_latent);
    for (const AttentionCalibration& layer : calibration.layers) {
      INFO(name << " layer " << layer.layer);
      const Json& seen = fixture.expected.at("layers").at(static_cast<size_t>(layer.layer));
      const double k = seen.at("k_head_amax").at(0).get<double>();
      const double v = seen.at("v_head_amax").at(0).get<double>();
      CHECK(test::relative_error(layer.k.range().amax().value, k) <= 1e-4);
      CHECK(test::relative_error(layer.v.range().amax().value, v) <= 1e-4);
      CHECK(test::relative_error(layer.k.scales.at(0).value, std::max(k, v) / 448.0) <= 1e-4);
      CHECK(layer.v.scales.at(0).value == layer.k.scales.at(0).value);
    }
  }
}

TEST_CASE("attention is compared with the scales made, and with 1.0, in every mode") {
  ModelFixture fixture("qwen2");
  const std::vector<Sample> samples{{0, fixture.ids}, {1, fixture.ids}};
  for (const std::string observer : {"static_minmax", "mse"})
    for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
      const Calibration calibration =
          run(fixture, recipe_with(observer, Strategy::kTensor), samples, mode, 1);
      for (const AttentionCalibration& layer : calibration.layers) {
        INFO(observer << ", layer " << layer.layer);
        REQUIRE(layer.damage.has_value());
        const AttentionError own = sum_of(layer.damage->calibrated),
                             unit = sum_of(layer.damage->unit);
        CHECK(own.queries == kComparedQueries * fixture.config.attention(layer.layer).heads);
        CHECK(own.relative_error() > 0.0);
        CHECK(own.relative_error() < 0.2);
        CHECK(unit.output == own.output);  // of the same unquantized attention
        CHECK(unit.error != own.error);
      }
      const Calibration without =
          run(fixture, recipe_with(observer, Strategy::kTensor), samples, mode, 0);
      for (size_t i = 0; i < without.layers.size(); ++i) {
        CHECK(!without.layers[i].damage.has_value());
        CHECK(without.layers[i].k.scales[0].value == calibration.layers[i].k.scales[0].value);
      }
    }
}

TEST_CASE("an ignored layer is marked") {
  ModelFixture fixture("llama");
  const std::vector<Sample> samples{{0, fixture.ids}};
  Recipe recipe = recipe_with("static_minmax", Strategy::kTensor);
  recipe.modifiers[0].ignore = {"re:.*layers.0.self_attn$", "lm_head"};
  const Calibration calibration = run(fixture, recipe, samples, KvForward::kQuantized);
  CHECK(calibration.layers[0].ignored);
  CHECK_FALSE(calibration.layers[1].ignored);
}

TEST_CASE("NaN in the weights is an error that names layer, head and token") {
  // A checkpoint whose layer 1 K projection holds one NaN in the rows of head 1.
  const test::ScratchFolder scratch;
  fs::copy(test::model_fixture("llama"), scratch / "model");
  {
    const ModelFixture source("llama");
    const TensorView& k_proj = source.model_dir.tensor("model.layers.1.self_attn.k_proj.weight");
    const MappedFile& file = source.model_dir.shards()[0].file();
    const auto element =
        static_cast<size_t>(source.config.head_dim * source.config.hidden_size + 3);
    const auto offset = static_cast<size_t>(k_proj.bytes.data() - file.bytes().data());
    std::string bytes = read_text(file.path());
    bytes[offset + 2 * element] = '\x00';
    bytes[offset + 2 * element + 1] = '\x7e';
    const fs::path target = scratch / "model" / file.path().filename();
    fs::remove(target);
    test::write_file(target, bytes);
  }
  ModelFixture fixture(scratch / "model");
  const std::vector<Sample> samples{{41, fixture.ids}};
  CHECK(message_of([&] {
          run(fixture, recipe_with("static_minmax", Strategy::kTensor), samples, KvForward::kExact);
        }) ==
        "NaN or Inf in K of layer 1, head 1, at token 0 of record 41: the weights or the compute "
        "dtype cannot carry this model");
}

TEST_CASE("the scales of several devices are those of one") {
  for (const std::string name : {"llama", "mixtral", "jamba", "deepseek_v2"})
    for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
      INFO(name);
      ModelFixture fixture(name, "reference");
      std::vector<Sample> samples;
      for (const size_t length : {7, 3, 12, 1, 9})
        samples.push_back({static_cast<int64_t>(samples.size()),
                           {fixture.ids.begin(), fixture.ids.begin() + length}});
      // An observer for which the order of the samples matters.
      const Recipe recipe = recipe_with("minmax", Strategy::kTensor, 0.3);
      const Calibration one = run(fixture, recipe, samples, mode);
      for (const size_t count : {2, 3}) {
        std::vector<std::unique_ptr<Backend>> owned;
        std::vector<Backend*> backends;
        for (size_t i = 0; i < count; ++i) {
          owned.push_back(kBackends.at("reference")({.num_threads = 1}));
          backends.push_back(owned.back().get());
        }
        std::vector<std::span<const TokenId>> ids;
        for (const Sample& sample : samples) ids.emplace_back(sample.ids);
        SilentDiagnostics silent;
        DividedForward forward(fixture.config, fixture.weights, backends, ids, {.batch_tokens = 64},
                               silent);
        const QuantPlan plan = resolve_plan(recipe, fixture.config, silent);
        const Calibration several = calibrate(forward, fixture.config, plan, samples,
                                              {.kv_forward = mode}, nullptr, silent);
        REQUIRE(several.layers.size() == one.layers.size());
        for (size_t layer = 0; layer < one.layers.size(); ++layer)
          for (const auto side : {&AttentionCalibration::k, &AttentionCalibration::v}) {
            const KvTensorCalibration& a = several.layers[layer].*side;
            const KvTensorCalibration& b = one.layers[layer].*side;
            REQUIRE(a.scales.size() == b.scales.size());
            for (size_t i = 0; i < a.scales.size(); ++i)
              CHECK(a.scales[i].value == b.scales[i].value);
            CHECK(a.num_saturated == b.num_saturated);
            CHECK(a.num_values == b.num_values);
            CHECK(a.range().amax().value == b.range().amax().value);
          }
      }
    }
}
