// Ending a calibration when its scales have settled, and statistics that come in rounds.
#include "calib/stable_calibration.h"

#include "calib/plan/resolve_plan.h"
#include "calib/statistics/observed_statistics.h"
#include "forward/divided_forward.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

Recipe recipe_with(const std::string& observer, const std::string& strategy,
                   bool has_inputs = true) {
  const std::string fp8 = "type: float, num_bits: 8, observer: " + observer;
  return parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {ignore: [lm_head], " +
      (has_inputs ? "config_groups: {g: {targets: [Linear], weights: {type: float, num_bits: 8, "
                    "strategy: tensor}, input_activations: {" +
                        fp8 + ", strategy: tensor}}}, "
                  : std::string()) +
      "kv_cache_scheme: {" + fp8 + ", strategy: " + strategy + "}}}}");
}

/// Samples of a fixture's text, of these lengths.
std::vector<Sample> samples_of(const ModelFixture& fixture, std::initializer_list<size_t> lengths) {
  std::vector<Sample> samples;
  for (const size_t length : lengths) {
    // Each begins elsewhere, so that they differ.
    Sample sample{.index = std::ssize(samples), .ids = {}};
    for (size_t i = 0; i < length; ++i)
      sample.ids.push_back(fixture.ids[(i + 5 * samples.size()) % fixture.ids.size()]);
    samples.push_back(std::move(sample));
  }
  return samples;
}

class WarningList : public Diagnostics {
 public:
  std::vector<std::string> lines;
  void warn(const std::string& message) override { lines.push_back(message); }
  void progress(std::string_view, int64_t, int64_t, std::string_view) override {}
};

/// One fixture, its plan, and forwards over any of its samples.
struct Case {
  Case(const std::string& name, const Recipe& recipe)
      : fixture(name), plan(resolve_plan(recipe, fixture.config, silent)) {}

  std::unique_ptr<LayerForward> forward(std::span<const Sample> samples,
                                        Diagnostics& diagnostics) const {
    ++passes;
    std::vector<std::span<const TokenId>> ids;
    for (const Sample& sample : samples) ids.emplace_back(sample.ids);
    Backend* const backend = fixture.backend.get();
    return std::make_unique<DividedForward>(fixture.config, fixture.weights, std::span(&backend, 1),
                                            ids, LayerwiseOptions{.batch_tokens = 64}, diagnostics);
  }
  Calibration all_at_once(std::span<const Sample> samples, const CalibrationOptions& options,
                          Statistics* kept) {
    return calibrate(*forward(samples, silent), fixture.config, plan, samples, options, kept,
                     silent);
  }
  StableCalibration until_stable(std::span<const Sample> samples, const CalibrationOptions& options,
                                 const StopRule& rule, Statistics* kept, Diagnostics& told) {
    passes = 0;
    return calibrate_until_stable(
        [this](std::span<const Sample> some, Diagnostics& diagnostics) {
          return forward(some, diagnostics);
        },
        fixture.config, plan, samples, options, rule, kept, told);
  }

  SilentDiagnostics silent;
  ModelFixture fixture;
  QuantPlan plan;
  mutable int passes = 0;
};

void check_equal(const TensorStatistics& found, const TensorStatistics& expected) {
  CHECK(found.heads == expected.heads);
  REQUIRE(found.ranges.size() == expected.ranges.size());
  for (size_t i = 0; i < found.ranges.size(); ++i) {
    CHECK(found.ranges[i].min == expected.ranges[i].min);
    CHECK(found.ranges[i].max == expected.ranges[i].max);
  }
  REQUIRE(found.histograms.size() == expected.histograms.size());
  for (size_t i = 0; i < found.histograms.size(); ++i)
    CHECK(found.histograms[i].counts == expected.histograms[i].counts);
}

void check_equal(const Statistics& found, const Statistics& expected) {
  REQUIRE(found.attention.size() == expected.attention.size());
  for (size_t i = 0; i < found.attention.size(); ++i) {
    CHECK(found.attention[i].module == expected.attention[i].module);
    check_equal(found.attention[i].k, expected.attention[i].k);
    check_equal(found.attention[i].v, expected.attention[i].v);
    REQUIRE(found.attention[i].q.has_value() == expected.attention[i].q.has_value());
    if (found.attention[i].q) check_equal(*found.attention[i].q, *expected.attention[i].q);
    CHECK(found.attention[i].compared.has_value() == expected.attention[i].compared.has_value());
  }
  REQUIRE(found.inputs.size() == expected.inputs.size());
  for (size_t i = 0; i < found.inputs.size(); ++i) {
    INFO(expected.inputs[i].name);
    CHECK(found.inputs[i].name == expected.inputs[i].name);
    CHECK(found.inputs[i].tokens == expected.inputs[i].tokens);
    check_equal(found.inputs[i].seen, expected.inputs[i].seen);
  }
}

void check_equal(const KvTensorCalibration& found, const KvTensorCalibration& expected) {
  REQUIRE(found.scales.size() == expected.scales.size());
  for (size_t i = 0; i < found.scales.size(); ++i)
    CHECK(found.scales[i].value == expected.scales[i].value);
  CHECK(found.num_saturated == expected.num_saturated);
  CHECK(found.num_values == expected.num_values);
  CHECK(found.convergence.num_samples == expected.convergence.num_samples);
  CHECK(found.convergence.low.value == expected.convergence.low.value);
}

void check_equal(const std::vector<AttentionError>& found,
                 const std::vector<AttentionError>& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t head = 0; head < found.size(); ++head) {
    CHECK(found[head].error == expected[head].error);
    CHECK(found[head].kl == expected[head].kl);
    CHECK(found[head].queries == expected[head].queries);
  }
}

void check_equal(const Calibration& found, const Calibration& expected) {
  REQUIRE(found.layers.size() == expected.layers.size());
  for (size_t i = 0; i < found.layers.size(); ++i) {
    check_equal(found.layers[i].k, expected.layers[i].k);
    check_equal(found.layers[i].v, expected.layers[i].v);
    REQUIRE(found.layers[i].damage.has_value() == expected.layers[i].damage.has_value());
    if (!found.layers[i].damage) continue;
    check_equal(found.layers[i].damage->calibrated, expected.layers[i].damage->calibrated);
    check_equal(found.layers[i].damage->unit, expected.layers[i].damage->unit);
  }
  REQUIRE(found.linears.size() == expected.linears.size());
  for (size_t i = 0; i < found.linears.size(); ++i) {
    CHECK(found.linears[i].module == expected.linears[i].module);
    CHECK(found.linears[i].input_scale.value == expected.linears[i].input_scale.value);
    CHECK(found.linears[i].input_tokens == expected.linears[i].input_tokens);
  }
}

/// A calibration of one layer and one static input by hand.
Calibration by_hand(std::vector<float> k, float v, std::optional<float> input) {
  Calibration calibration;
  AttentionCalibration layer{.layer = 3, .module = "attn", .k = {}, .v = {}};
  for (const float scale : k) layer.k.scales.push_back({scale});
  layer.v.scales.push_back({v});
  calibration.layers.push_back(layer);
  calibration.layers.push_back({.layer = 4, .module = "left", .ignored = true, .k = {}, .v = {}});
  calibration.layers.back().k.scales.push_back({k[0] * k[0]});  // counts for nothing
  QuantScheme scheme;
  scheme.input_activations.emplace();
  calibration.plan.groups = {scheme};
  calibration.plan.linears = {{.module = "down", .layer = 5}};
  if (input) calibration.linears = {{.module = "down", .input_amax = {}, .input_scale = {*input}}};
  return calibration;
}

}  // namespace

TEST_CASE("stop rule: the largest move over a window decides, upwards or downwards") {
  ScaleHistory history({.ratio = 0.1, .window = 4});
  history.add(4, by_hand({1.0f, 2.0f}, 1.0f, 1.0f));
  CHECK_FALSE(history.largest_move().has_value());
  CHECK_FALSE(history.is_stable());
  history.add(8, by_hand({1.0f, 1.0f}, 1.25f, 1.0f));
  REQUIRE(history.largest_move().has_value());
  CHECK(history.largest_move()->ratio == 0.5);  // |1 - 2| / 2, more than 0.25
  CHECK(history.largest_move()->module == "attn");
  CHECK(history.largest_move()->layer == 3);
  CHECK(history.largest_move()->scale == "k_scale");
  CHECK(history.largest_move()->head == 1);
  CHECK(history.largest_move()->num_samples == 4);
  CHECK_FALSE(history.is_stable());
  history.add(12, by_hand({1.0f, 1.0f}, 1.25f, 0.9375f));
  CHECK(history.largest_move()->ratio == 0.0625);
  CHECK(history.largest_move()->scale == "input_scale");
  CHECK(history.largest_move()->layer == 5);
  CHECK_FALSE(history.largest_move()->head.has_value());
  CHECK(history.is_stable());
  // Fewer than a window behind 12: compared with 8.
  history.add(14, by_hand({1.0f, 1.0f}, 2.5f, 0.9375f));
  CHECK(history.largest_move()->num_samples == 6);
  CHECK(history.largest_move()->ratio == 1.0);
  CHECK(history.largest_move()->scale == "v_scale");
}

TEST_CASE("stop rule: a scale that is not there yet has not settled") {
  ScaleHistory history({.ratio = 0.5, .window = 1});
  history.add(1, by_hand({1.0f}, 1.0f, {}));
  history.add(2, by_hand({1.25f}, 1.0f, {}));
  CHECK_FALSE(history.is_stable());
  CHECK(history.largest_move()->scale == "input_scale");
  CHECK_FALSE(history.largest_move()->ratio.has_value());
  history.add(3, by_hand({1.25f}, 1.0f, 1.0f));
  CHECK_FALSE(history.is_stable());
  history.add(4, by_hand({1.25f}, 1.0f, 1.0f));
  CHECK(history.is_stable());
  CHECK(history.largest_move()->ratio == 0.0);
}

TEST_CASE("statistics of rounds are those of one run, to the bit") {
  for (const std::string name : {"llama", "mixtral", "jamba", "deepseek_v2", "gpt_oss"}) {
    INFO(name);
    const bool is_latent = name == "deepseek_v2";
    Case one(name, recipe_with("static_minmax", "tensor", !is_latent));
    // The second sample of mixtral reaches experts that the first does not.
    const std::vector<Sample> samples = samples_of(one.fixture, {1, 7, 3, 12, 1, 9});
    const CalibrationOptions options{.kv_forward = KvForward::kExact,
                                     .derive = {.leaves_out_unseen = true},
                                     .observes_all = true};
    Statistics expected;
    one.all_at_once(samples, options, &expected);
    for (const size_t window : {1, 2, 4}) {
      ExactRounds rounds(one.fixture.config, observation_of(one.plan, options));
      for (size_t begin = 0; begin < samples.size(); begin += window) {
        const auto round =
            std::span(samples).subspan(begin, std::min(window, samples.size() - begin));
        rounds.add(*one.forward(round, one.silent), round.size());
      }
      check_equal(rounds.statistics(samples), expected);
    }
  }
}

TEST_CASE("a calibration that may stop is that of the samples it used") {
  for (const std::string observer : {"static_minmax", "mse", "minmax"})
    for (const KvForward mode : {KvForward::kExact, KvForward::kQuantized}) {
      INFO(observer << ", " << static_cast<int>(mode));
      Case one("llama", recipe_with(observer, "attn_head"));
      const std::vector<Sample> samples =
          samples_of(one.fixture, {12, 9, 12, 7, 12, 12, 12, 12, 9, 12, 12, 12});
      CalibrationOptions options{.kv_forward = mode,
                                 .compared_samples = compared_samples(lengths_of(samples))};
      WarningList told;
      const StableCalibration stable =
          one.until_stable(samples, options, {.ratio = 0.2, .window = 2}, nullptr, told);
      const auto used = static_cast<size_t>(stable.stop.num_samples);
      CHECK(stable.stop.is_stable);
      CHECK(stable.stop.max_samples == 12);
      REQUIRE(used < samples.size());
      CHECK(used % 2 == 0);
      REQUIRE(stable.stop.largest_move.has_value());
      CHECK(stable.stop.largest_move->ratio.value() <= 0.2);
      CHECK(told.lines.empty());
      // One more pass: over all samples where later layers see what is quantized, or clipped
      // values are counted, else over those whose attention is compared.
      CHECK(one.passes == static_cast<int>(used) / 2 + 1);
      const auto first = std::span(samples).first(used);
      options.compared_samples = compared_samples(lengths_of(first));
      CHECK(options.compared_samples > 0);
      check_equal(stable.calibration, one.all_at_once(first, options, nullptr));
    }
}

TEST_CASE("a calibration that does not settle uses all samples, keeps all and says so") {
  Case one("llama", recipe_with("static_minmax", "tensor"));
  const std::vector<Sample> samples = samples_of(one.fixture, {1, 2, 3, 5, 12});
  CalibrationOptions options{.kv_forward = KvForward::kExact,
                             .observes_all = true,
                             .compared_samples = compared_samples(lengths_of(samples))};
  WarningList told;
  Statistics kept, expected;
  const StableCalibration stable =
      one.until_stable(samples, options, {.ratio = 0.0, .window = 2}, &kept, told);
  CHECK_FALSE(stable.stop.is_stable);
  CHECK(stable.stop.num_samples == 5);
  REQUIRE(stable.stop.largest_move.has_value());
  CHECK(stable.stop.largest_move->num_samples == 3);  // 5 against 2
  REQUIRE(told.lines.size() == 1);
  CHECK(told.lines[0].starts_with("the scales are not stable after 5 samples: "));
  CHECK(told.lines[0].ends_with(" % in the last 3 samples, the limit is 0 %"));
  check_equal(stable.calibration, one.all_at_once(samples, options, &expected));
  check_equal(kept, expected);

  told.lines.clear();
  const StableCalibration few = one.until_stable(std::span(samples).first(3), options,
                                                 {.ratio = 0.5, .window = 2}, &kept, told);
  CHECK_FALSE(few.stop.largest_move.has_value());
  CHECK(told.lines == std::vector<std::string>{
                          "the scales are not stable after 3 samples: they are fewer than two "
                          "windows of 2, so nothing could be compared"});
}

TEST_CASE("experts that no token has reached yet are no error before the end") {
  Case one("mixtral", recipe_with("static_minmax", "tensor"));
  // One token reaches two of five experts.
  const std::vector<Sample> samples = samples_of(one.fixture, {1, 1, 1, 12, 12, 12, 12, 12});
  const CalibrationOptions options{.kv_forward = KvForward::kExact};
  WarningList told;
  const StableCalibration stable =
      one.until_stable(samples, options, {.ratio = 0.9, .window = 1}, nullptr, told);
  CHECK(stable.stop.num_samples > 4);
  check_equal(
      stable.calibration,
      one.all_at_once(std::span(samples).first(static_cast<size_t>(stable.stop.num_samples)),
                      options, nullptr));
  // At the end of the samples they are.
  CHECK_THROWS_AS(one.until_stable(std::span(samples).first(2), options,
                                   {.ratio = 0.9, .window = 1}, nullptr, told),
                  Error);
}
