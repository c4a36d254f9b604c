// Calibration on backends with memory of their own: near the CPU's, and the same bytes however it
// is cut.
#include <cmath>

#include "calib/calibrator.h"
#include "calib/plan/resolve_plan.h"
#include "forward/divided_forward.h"
#include "support/catch.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

struct Cut {
  int64_t batch_tokens = 0;
  std::optional<uint64_t> memory_limit = {};
  int devices = 1;
};

Calibration calibrate_on(const std::string& backend, const std::string& name, ComputeType type,
                         KvForward mode, const Cut& cut = {}) {
  ModelFixture fixture(name, backend);
  std::vector<Sample> samples;
  for (size_t length : {fixture.ids.size(), size_t{9}, fixture.ids.size(), size_t{1}, size_t{17}})
    samples.push_back(
        {static_cast<int64_t>(samples.size()),
         {fixture.ids.begin(),
          fixture.ids.begin() + static_cast<int64_t>(std::min(length, fixture.ids.size()))}});
  std::vector<std::span<const TokenId>> ids;
  for (const Sample& sample : samples) ids.emplace_back(sample.ids);
  std::vector<std::unique_ptr<Backend>> others;
  std::vector<Backend*> backends{fixture.backend.get()};
  for (int i = 1; i < cut.devices; ++i) {
    others.push_back(test::make_backend(backend));
    backends.push_back(others.back().get());
  }
  const Recipe recipe = parse_recipe(
      "s_stage: {g_modifiers: {QuantizationModifier: {kv_cache_scheme: {type: float, strategy: "
      "attn_head, observer: static_minmax}}}}");
  SilentDiagnostics silent;
  DividedForward forward(fixture.config, fixture.weights, backends, ids,
                         {.compute_type = type,
                          .batch_tokens = cut.batch_tokens,
                          .memory_limit = cut.memory_limit,
                          .scratch_folder = fs::temp_directory_path()},
                         silent);
  return calibrate(forward, fixture.config, resolve_plan(recipe, fixture.config, silent), samples,
                   {.kv_forward = mode}, nullptr, silent);
}

std::vector<float> scales_of(const Calibration& calibration) {
  std::vector<float> scales;
  for (const AttentionCalibration& layer : calibration.layers)
    for (const auto* side : {&layer.k, &layer.v})
      for (const Scale& scale : side->scales) scales.push_back(scale.value);
  return scales;
}

std::vector<uint64_t> counts_of(const Calibration& calibration) {
  std::vector<uint64_t> counts;
  for (const AttentionCalibration& layer : calibration.layers)
    for (const auto* side : {&layer.k, &layer.v}) {
      counts.push_back(side->num_saturated.value());
      for (const MagnitudeHistogram& histogram : side->head_histograms)
        counts.insert(counts.end(), histogram.counts.begin(), histogram.counts.end());
    }
  return counts;
}

// Dense; experts; a latent cache; windows and soft-caps; sinks; each kind of recurrence.
const std::vector<std::string> kFixtures{"llama",   "mixtral",    "deepseek_v3", "gemma2",
                                         "gpt_oss", "nemotron_h", "jamba",       "qwen3_next"};

}  // namespace

TEST_CASE("a device's scales are within 1e-3 of the CPU's in float32") {
  for (const std::string& device : test::device_names())
    for (const std::string& name : kFixtures)
      for (const KvForward mode : {KvForward::kQuantized, KvForward::kExact}) {
        INFO(device << ", " << name);
        const auto expected = scales_of(calibrate_on("cpu", name, ComputeType::kFloat32, mode));
        const auto actual = scales_of(calibrate_on(device, name, ComputeType::kFloat32, mode));
        REQUIRE(!expected.empty());
        REQUIRE(actual.size() == expected.size());
        for (size_t i = 0; i < actual.size(); ++i) {
          INFO("scale " << i);
          CHECK(test::relative_error(static_cast<double>(actual[i]),
                                     static_cast<double>(expected[i])) <= 1e-3);
        }
      }
}

TEST_CASE("a device's bytes depend neither on batches, nor on memory, nor on other devices") {
  for (const std::string& device : test::device_names())
    for (const std::string& name : kFixtures)
      for (const ComputeType type : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
        const Calibration expected = calibrate_on(device, name, type, KvForward::kQuantized);
        for (const Cut& cut :
             {Cut{}, Cut{.batch_tokens = 1}, Cut{.batch_tokens = 40}, Cut{.memory_limit = 900'000},
              Cut{.devices = 2}, Cut{.batch_tokens = 20, .devices = 3}}) {
          INFO(device << ", " << name << ", " << name_of(type) << ", batches of "
                      << cut.batch_tokens << ", " << cut.devices << " devices");
          const Calibration actual = calibrate_on(device, name, type, KvForward::kQuantized, cut);
          CHECK(scales_of(actual) == scales_of(expected));
          CHECK(counts_of(actual) == counts_of(expected));
        }
      }
}
