#include "export/manifest.h"

#include <cmath>

#include "export/quantized_case.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// Of a run over a data set, or without one.
ManifestInput run_over(const std::string& dataset) {
  ManifestInput input;
  input.version = "1";
  input.dataset_path = dataset;
  return input;
}

}  // namespace

TEST_CASE("manifest: every quantized module has its numbers, absent ones null") {
  const QuantizedParts parts("static_kv");
  const ScratchFolder scratch;
  const WrittenCheckpoint written =
      kWriters.at("compressed-tensors")()->write(parts.input(), scratch.path());
  const Json manifest = make_manifest(run_over("d"), parts.recipe, parts.calibration, written);
  const Json& linears = manifest.at("linears");
  REQUIRE(linears.size() == 14);
  const ModelDir output(scratch.path());
  for (const LinearCalibration& linear : parts.calibration.linears) {
    const Json& json = linears.at(linear.module);
    CHECK(json.size() == 5);
    CHECK(json.at("input_amax").get<float>() == linear.input_amax.value);
    CHECK(json.at("input_scale").get<float>() == linear.input_scale.value);
    CHECK(json.at("input_tokens") == 62);
    CHECK(json.at("weight_scale").get<float>() ==
          output.tensor(linear.module + ".weight_scale").as<float>()[0]);
    CHECK(json.at("weight_amax").get<float>() ==
          written.weights.at(linear.module).amax.value().value);
  }
  const Json& groups = manifest.at("recipe").at("config_groups");
  CHECK(groups.at("group_0").at("format") == "float-quantized");
  // Without a checkpoint nothing is known of the weights.
  const Json without = make_manifest(run_over("d"), parts.recipe, parts.calibration);
  CHECK(without.at("linears").at(parts.calibration.linears[0].module).at("weight_scale").is_null());
}

TEST_CASE("manifest: a run without text has no data set, no layers and no KV scheme") {
  const QuantizedParts parts("dynamic");
  const Json manifest = make_manifest(run_over(""), parts.recipe, parts.calibration);
  CHECK(manifest.at("dataset").is_null());
  CHECK(manifest.at("layers").empty());
  CHECK(manifest.at("recipe").at("kv_cache_scheme").is_null());
  const Json& linear = manifest.at("linears").front();
  CHECK(linear.at("input_scale").is_null());
  CHECK(!linear.contains("input_tokens"));
}

TEST_CASE("manifest: KV alone has the keys it had, queries add theirs") {
  const Calibration calibration = calibration_of(export_case("single_head"));
  const Json kv = make_manifest(run_over("d"), recipe_of(calibration), calibration);
  CHECK(kv.at("linears") == Json::object());
  CHECK(!kv.at("recipe").contains("config_groups"));
  CHECK(kv.at("recipe").at("ignore") == Json{"lm_head"});
  CHECK(!kv.at("layers")[0].contains("q_scale"));
  const QuantizedParts parts("attention");
  const Json with = make_manifest(run_over("d"), parts.recipe, parts.calibration);
  CHECK(with.at("layers")[0].at("q_scale").size() == 6);
  // Nobody counted here.
  CHECK(with.at("layers")[0].at("q_saturated").is_null());
  CHECK(with.at("recipe").at("config_groups").at("group_0").at("targets") ==
        Json{"LlamaAttention"});
}

TEST_CASE("manifest: a histogram counts every magnitude of all heads in its half octave") {
  Calibration calibration = calibration_of(export_case("single_head"));
  const std::vector<std::vector<float>> heads{{0.0f, 1e-30f, 0.75f, 0.7499f, 1.0f, 1.49f, 1.5f},
                                              {0.25f, 0.374f, 3.0f, 3.99f, 1.0f, 0.0f}};
  KvStatistics& seen = calibration.layers[0].k.statistics;
  for (const std::vector<float>& head : heads) {
    MagnitudeHistogram& histogram = seen.head_histograms.emplace_back();
    for (const float value : head)
      ++histogram.counts[static_cast<size_t>(MagnitudeHistogram::bin_of(value))];
  }
  const Json manifest = make_manifest(run_over("d"), recipe_of(calibration), calibration);
  const Json& json = manifest.at("layers")[0].at("k_histogram");
  CHECK(json.at("zeros") == 3);
  REQUIRE(json.at("first_octave") == -2);  // 0.25
  const Json& counts = json.at("counts");
  REQUIRE(counts.size() == 8);  // up to [3, 4)
  for (size_t i = 0; i < counts.size(); ++i) {
    const double octave = std::ldexp(1.0, -2 + static_cast<int>(i / 2));
    const double from = i % 2 ? 1.5 * octave : octave, to = i % 2 ? 2.0 * octave : 1.5 * octave;
    uint64_t expected = 0;
    for (const std::vector<float>& head : heads)
      for (const float value : head) expected += from <= value && value < to;
    INFO("half octave " << i);
    CHECK(counts[i] == expected);
  }
  // Of a tensor of which nothing was counted.
  const Json& none = manifest.at("layers")[0].at("v_histogram");
  CHECK(none.at("counts").empty());
  CHECK(none.at("zeros") == 0);
}
