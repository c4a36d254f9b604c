#include "run/calibration_result.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

KvTensorCalibration side(float scale, float amax, std::optional<uint64_t> saturated = {}) {
  KvTensorCalibration one;
  one.num_values = 1000;
  one.head_ranges.emplace_back().fold({0.0f, amax});
  one.scales = {Scale{scale}};
  one.num_saturated = saturated;
  return one;
}

CalibrationResult result_of(size_t num_layers) {
  CalibrationResult result{.config = {}};
  for (size_t layer = 0; layer < num_layers; ++layer)
    result.calibration.layers.push_back({.layer = static_cast<int64_t>(layer),
                                         .module = "",
                                         .k = side(0.25f, 112.0f, 5),
                                         .v = side(0.125f * static_cast<float>(layer + 1), 56.0f)});
  return result;
}

}  // namespace

TEST_CASE("calibration text: a row a layer, with clipped parts where they were counted") {
  CHECK(calibration_text(result_of(2), true) ==
        "layer  k_scale  v_scale  k_amax  v_amax  k clipped  v clipped\n"
        "    0     0.25    0.125     112      56      0.5 %          -\n"
        "    1     0.25     0.25     112      56      0.5 %          -\n");
}

TEST_CASE("calibration text: a line of ranges stands for the layers") {
  CalibrationResult result = result_of(3);
  result.calibration.layers[2].ignored = true;
  CHECK(calibration_text(result, false) ==
        "scales      3 layers: k_scale 0.25 to 0.25, v_scale 0.125 to 0.25, 1 ignored (--verbose "
        "lists them)\n");
}

TEST_CASE("calibration text: queries get a column, ignored layers, heads and channels a word") {
  CalibrationResult result = result_of(2);
  auto& layers = result.calibration.layers;
  layers[0].q = side(0.5f, 1.0f);
  layers[0].k.scales.push_back(Scale{1.0f});
  layers[0].k.head_ranges.push_back(layers[0].k.head_ranges[0]);
  layers[0].v.scales.resize(4, Scale{1.0f});
  layers[1].ignored = true;
  CHECK(calibration_text(result, true) ==
        "layer  q_scale  k_scale     v_scale  k_amax  v_amax  k clipped  v clipped\n"
        "    0      0.5  2 heads  4 channels     112      56      0.5 %          -\n"
        "    1  ignored  ignored     ignored     112      56      0.5 %          -\n");
}

TEST_CASE("calibration text: inputs of Linears, each or by their last names") {
  CalibrationResult result{.config = {}};
  for (const char* module : {"a.0.q_proj", "a.1.q_proj", "a.0.up_proj"})
    result.calibration.linears.push_back({.module = module,
                                          .input_amax = Amax{448.0f},
                                          .input_scale = Scale{1.0f},
                                          .input_tokens = 7});
  result.calibration.linears[1].input_scale = Scale{2.0f};
  CHECK(calibration_text(result, true) ==
        "     module  input_scale  input_amax  tokens\n"
        " a.0.q_proj            1         448       7\n"
        " a.1.q_proj            2         448       7\n"
        "a.0.up_proj            1         448       7\n"
        "modules  count  input_scale  input_amax\n"
        " q_proj      2       1 to 2  448 to 448\n"
        "up_proj      1       1 to 1  448 to 448\n");
  CHECK(calibration_text(result, false) ==
        "inputs      3 static scales of Linears (--verbose lists them)\n");
}

TEST_CASE("calibration text: a stable end names its samples, another end is no line") {
  StopOutcome stop{.rule = {}, .num_samples = 128, .max_samples = 512, .is_stable = true};
  stop.largest_move = ScaleMove{.module = "", .scale = "", .num_samples = 64, .ratio = 0.005};
  CHECK(stop_text(stop) ==
        "stable after 128 of at most 512 samples: in the last 64 no scale moved by more than "
        "0.5 %\n");
  stop.is_stable = false;
  CHECK(stop_text(stop).empty());
}

TEST_CASE("calibration text: a row a rank") {
  const RankWork work{.samples = 3,
                      .tokens = 96,
                      .flop = 2e9,
                      .bytes_read = 1'500'000,
                      .storage_bytes = 0,
                      .processor_seconds = 1.5,
                      .peak_bytes = 20'000'000};
  CHECK(shares_text({{.host = "north", .work = work}}) ==
        "rank   host  samples  tokens     TFLOP   MB of  MB from  processor s  peak MB\n"
        "                                        layers  storage\n"
        "                                          read\n"
        "   0  north        3      96  0.002000     1.5      0.0         1.50     20.0\n");
}

TEST_CASE("calibration text: labels have a column of twelve") {
  CHECK(labelled_text({{"KL", "0.1"}, {"perplexity", "9"}}) == "KL          0.1\nperplexity  9\n");
}
