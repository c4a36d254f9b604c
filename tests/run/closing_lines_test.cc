#include "run/calibration_result.h"

#include <map>

#include "support/catch.h"

using namespace kvcal;

namespace {

SideErrors errors_of(double calibrated, double unit) {
  return {.calibrated = {.values = 1, .squared_error = calibrated * calibrated, .squared = 1},
          .unit = {.values = 1, .squared_error = unit * unit, .squared = 1}};
}

CalibrationResult result_of(ScaleSummary summary) {
  CalibrationResult result;
  summary.cache_bytes_fp8 = 23040;
  result.summary = std::move(summary);
  return result;
}

std::map<std::string, std::string> lines_of(const CalibrationResult& result) {
  std::map<std::string, std::string> lines;
  for (const bool answers : {true, false})
    for (const auto& [label, text] : closing_lines(result, answers)) lines[label] = text;
  return lines;
}

}  // namespace

TEST_CASE("closing_lines: a run says its cost, its cache and its worst layers first") {
  ScaleSummary summary;
  for (int64_t layer = 0; layer < 5; ++layer)
    summary.layers.push_back({.layer = layer,
                              .k = errors_of(0.02 + 0.001 * static_cast<double>(layer), 0.02),
                              .v = errors_of(0.01, 0.01)});
  CalibrationResult result = result_of(summary);
  result.cost =
      RunCost{.num_samples = 512, .num_tokens = 262144, .seconds = 73.84, .peak_bytes = 812000000};
  const auto lines = lines_of(result);
  CHECK(lines.at("calibrated") == "512 samples, 262144 tokens in 73.8 s, peak memory 812.0 MB");
  CHECK(lines.at("KV cache") == "23040 bytes a token in FP8, 46080 in 16 bits");
  CHECK(lines.at("rounding") ==
        "largest error against the values in layers 4 (K 2.4 %, V 1.0 %), 3 (K 2.3 %, V 1.0 %), "
        "2 (K 2.2 %, V 1.0 %)");
  CHECK(lines.count("samples") == 0);
  CHECK(lines.count("device") == 0);
  std::vector<std::string> answers;
  for (const auto& [label, text] : closing_lines(result, true)) answers.push_back(label);
  CHECK(answers == std::vector<std::string>{"calibrated", "KV cache", "rounding"});
  for (const auto& [label, text] : closing_lines(result, false)) CHECK(label.size() < 12);
  result.cost->device = "cuda:0 (H200, sm_90, cuBLASLt 13.1.0), attention on tensor cores";
  CHECK(lines_of(result).at("device") == result.cost->device);
}

TEST_CASE("closing_lines: growth over a twentieth asks for more samples") {
  ScaleSummary summary;
  summary.layers.push_back({.layer = 0, .k = errors_of(0.02, 0.02), .v = errors_of(0.01, 0.01)});
  summary.growth = LateGrowth{
      .ratio = 0.25, .layer = 7, .is_key = true, .from_samples = 256, .num_samples = 512};
  CHECK(lines_of(result_of(summary)).at("samples") ==
        "largest values grew by at most 25 % in the last 256 of 512 samples (K of layer 7): more "
        "samples may move scales");
  summary.growth->ratio = 0.05;
  CHECK(lines_of(result_of(summary)).at("samples") ==
        "largest values grew by at most 5 % in the last 256 of 512 samples (K of layer 7)");
  summary.growth->ratio = 0;
  CHECK(lines_of(result_of(summary)).at("samples") ==
        "no largest value grew in the last 256 of 512 samples");
}

TEST_CASE("closing_lines: a result without scales of a cache has none") {
  CHECK(closing_lines(CalibrationResult{}, true).empty());
  CHECK(closing_lines(CalibrationResult{}, false).empty());
}

TEST_CASE("closing_lines: values that still grow at the last positions ask for longer samples") {
  ScaleSummary summary;
  summary.layers.push_back({.layer = 0, .k = errors_of(0.02, 0.02), .v = errors_of(0.01, 0.01)});
  CHECK(lines_of(result_of(summary)).count("positions") == 0);
  summary.late = LatePositions{.k_layers = {0, 1, 2}, .first = 384, .advised = 1024};
  CHECK(lines_of(result_of(summary)).at("positions") ==
        "K of layers 0-2 is still largest at the last positions, from 384 on: choose "
        "samples of 1024 tokens or more");
}

TEST_CASE("closing_lines: few tokens, and scales that still move, are warnings") {
  ScaleSummary summary;
  summary.layers.push_back({.layer = 0, .k = errors_of(0.02, 0.02), .v = errors_of(0.01, 0.01)});
  summary.growth = LateGrowth{
      .ratio = 0.05, .layer = 7, .is_key = true, .from_samples = 256, .num_samples = 512};
  CHECK(warnings_of(summary, 1000).empty());
  CHECK(summary_json(summary, 1000).at("warnings").empty());
  summary.growth->ratio = 0.25;
  const std::vector<std::string> found = warnings_of(summary, 999);
  CHECK(summary_json(summary, 999).at("warnings") == Json(found));
  CHECK(found ==
        std::vector<std::string>{
            "999 tokens may not show the largest values of other text: calibrate on 1000 or more",
            "scales still move: largest values grew by at most 25 % in the last 256 of 512 samples "
            "(K of layer 7): more samples may move scales"});
}
