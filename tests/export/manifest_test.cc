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
  input.origin.dataset_path = dataset;
  return input;
}

}  // namespace

TEST_CASE("manifest: every quantized module has its numbers, absent ones null") {
  const QuantizedParts parts("static_kv");
  const ScratchFolder scratch;
  const WrittenCheckpoint written =
      kWriters.at("compressed-tensors").make()->write(parts.input(), scratch.path());
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

TEST_CASE("manifest: columns stand beside the data set where they were named") {
  const QuantizedParts parts("dynamic");
  ManifestInput input = run_over("d");
  CHECK(!make_manifest(input, parts.recipe, parts.calibration).at("dataset").contains("columns"));
  input.origin.dataset_columns = R"({"prompt_column":"q","response_column":"a"})";
  CHECK(make_manifest(input, parts.recipe, parts.calibration).at("dataset").at("columns") ==
        Json({{"prompt_column", "q"}, {"response_column", "a"}}));
}

TEST_CASE("manifest: algorithms of products stand beside the device, and go with it") {
  const QuantizedParts parts("dynamic");
  ManifestInput input = run_over("d");
  const auto manifest = [&] { return make_manifest(input, parts.recipe, parts.calibration); };
  CHECK(manifest().contains("device"));
  CHECK(!manifest().contains("products"));
  input.products = {{{"product", "bfloat16, 16 to 8"}, {"algorithm", "66"}, {"chosen", "first"}}};
  CHECK(manifest().at("products") == input.products);
  input.leave_out_machine = true;
  CHECK(!manifest().contains("device"));
  CHECK(!manifest().contains("products"));
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

TEST_CASE("manifest: a draft, and a layer that reads another one's cache, say so") {
  Calibration calibration = calibration_of(export_case("single_head"));
  REQUIRE(calibration.layers.size() == 2);
  const auto layers_of = [&] {
    return make_manifest(run_over("d"), recipe_of(calibration), calibration).at("layers");
  };
  for (const Json& layer : layers_of()) {
    CHECK_FALSE(layer.contains("draft"));
    CHECK_FALSE(layer.contains("reads_cache_of"));
  }
  calibration.layers[1].reads_cache_of = 0;
  CHECK(layers_of()[1].at("reads_cache_of") == 0);
  CHECK_FALSE(layers_of()[0].contains("reads_cache_of"));
  calibration.num_hidden_layers = 1;
  CHECK(layers_of()[1].at("draft") == true);
  CHECK_FALSE(layers_of()[0].contains("draft"));
}

TEST_CASE("manifest: a histogram counts every magnitude of all heads in its half octave") {
  Calibration calibration = calibration_of(export_case("single_head"));
  const std::vector<std::vector<float>> heads{{0.0f, 1e-30f, 0.75f, 0.7499f, 1.0f, 1.49f, 1.5f},
                                              {0.25f, 0.374f, 3.0f, 3.99f, 1.0f, 0.0f}};
  KvTensorCalibration& seen = calibration.layers[0].k;
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

TEST_CASE("manifest: how the amax of K, V and Q came about, where it is known") {
  QuantizedParts parts("static_kv");
  const auto layers_of = [&] {
    return make_manifest(run_over("d"), parts.recipe, parts.calibration).at("layers");
  };
  CHECK_FALSE(layers_of()[0].contains("convergence"));
  AttentionCalibration& layer = parts.calibration.layers[0];
  layer.k.convergence = {
      .num_samples = {1, 2, 3}, .running = {{1.0f}, {2.0f}, {2.5f}}, .low = {1.5f}, .high = {2.5f}};
  layer.v.convergence = {
      .num_samples = {1, 2, 3}, .running = {{4.0f}, {4.0f}, {4.0f}}, .low = {3.0f}, .high = {4.0f}};
  Json expected = {{"num_samples", {1, 2, 3}},
                   {"k_amax", {1.0, 2.0, 2.5}},
                   {"v_amax", {4.0, 4.0, 4.0}},
                   {"k_interval", {1.5, 2.5}},
                   {"v_interval", {3.0, 4.0}}};
  CHECK(layers_of()[0].at("convergence") == expected);
  CHECK_FALSE(layers_of()[1].contains("convergence"));
  layer.q = layer.k;
  expected["q_amax"] = {1.0, 2.0, 2.5};
  expected["q_interval"] = {1.5, 2.5};
  CHECK(layers_of()[0].at("convergence") == expected);
}

TEST_CASE("manifest: how large K and V were by position, where it is known") {
  QuantizedParts parts("static_kv");
  const auto layers_of = [&] {
    return make_manifest(run_over("d"), parts.recipe, parts.calibration).at("layers");
  };
  CHECK_FALSE(layers_of()[0].contains("positions"));
  AttentionCalibration& layer = parts.calibration.layers[0];
  layer.k.position_amax = {{4.0f}, {0.0f}, {2.0f}, {1.0f}, {3.0f}};
  layer.v.position_amax = {{1.0f}, {0.0f}, {2.0f}, {1.0f}, {0.5f}};
  CHECK(layers_of()[0].at("positions") == Json{{"first", {0, 1, 2, 3, 4}},
                                               {"k_amax", {4.0, 0.0, 2.0, 1.0, 3.0}},
                                               {"v_amax", {1.0, 0.0, 2.0, 1.0, 0.5}}});
  ManifestInput input = run_over("d");
  input.origin.sample_indices = {7, 9};
  layer.k.amax_place = {.sample = 1, .first = 4, .last = 5};
  layer.v.amax_place = {.sample = 0, .first = 2, .last = 2, .text = "\n"};
  const Json positions =
      make_manifest(input, parts.recipe, parts.calibration).at("layers")[0].at("positions");
  CHECK(positions.at("k_largest") == Json{{"record", 9}, {"first", 4}, {"last", 5}});
  CHECK(positions.at("v_largest") ==
        Json{{"record", 7}, {"first", 2}, {"last", 2}, {"text", "\n"}});
}

TEST_CASE("manifest: what the cache does to attention, where it was compared") {
  QuantizedParts parts("static_kv");
  const auto layers_of = [&] {
    return make_manifest(run_over("d"), parts.recipe, parts.calibration).at("layers");
  };
  CHECK_FALSE(layers_of()[0].contains("attention_damage"));
  const AttentionError first{.error = 1.0, .output = 4.0, .kl = 3.0, .queries = 4};
  const AttentionError second{.error = 3.0, .output = 60.0, .kl = 1.0, .queries = 4};
  parts.calibration.layers[0].damage = {.calibrated = {first, second}, .unit = {first, first}};
  const Json damage = layers_of()[0].at("attention_damage");
  CHECK(damage.at("num_queries") == 4);
  CHECK(damage.at("calibrated") ==
        Json{{"output_error", 0.25},
             {"weights_kl", 0.5},
             {"head_output_error", {0.5, static_cast<float>(0.05 * std::sqrt(20.0))}},
             {"head_weights_kl", {0.75, 0.25}}});
  CHECK(damage.at("unit").at("output_error") == 0.5);
}

TEST_CASE("manifest: a run that could stop says how it ended") {
  const QuantizedParts parts("static_kv");
  ManifestInput input = run_over("d");
  CHECK_FALSE(make_manifest(input, parts.recipe, parts.calibration).contains("stop"));
  input.stop = {.rule = {.ratio = 0.25, .window = 4}, .num_samples = 8, .max_samples = 9};
  Json expected = {{"ratio", 0.25},    {"window", 4},        {"num_samples", 8},
                   {"max_samples", 9}, {"is_stable", false}, {"largest_move", nullptr}};
  const auto stop = [&] {
    return make_manifest(input, parts.recipe, parts.calibration).at("stop");
  };
  CHECK(stop() == expected);
  input.stop->is_stable = true;
  input.stop->largest_move = {.module = "m", .layer = 2, .scale = "v_scale", .num_samples = 5};
  expected["is_stable"] = true;
  expected["largest_move"] = {
      {"ratio", nullptr}, {"num_samples", 5}, {"module", "m"}, {"layer", 2}, {"scale", "v_scale"}};
  CHECK(stop() == expected);
  input.stop->largest_move->ratio = 0.125;
  input.stop->largest_move->head = 1;
  expected["largest_move"]["ratio"] = 0.125;
  expected["largest_move"]["head"] = 1;
  CHECK(stop() == expected);
}
