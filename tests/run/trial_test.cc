#include "run/trial.h"

#include <cstdlib>

#include "core/folder.h"
#include "run/support/text_checkpoint.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::KeptLines;
using kvcal::test::TextCheckpoint;

namespace {

Trial found(double gain, UnitScale unit, int64_t num_tokens = 1000) {
  Trial trial{.result = {.config = {}}, .measured = {}};
  trial.result.summary.emplace().unit = unit;
  trial.measured.calibrated.num_tokens = num_tokens;
  trial.measured.gain = {.mean = gain, .standard_error = 0.001};
  return trial;
}

struct Outcome {
  std::vector<std::string> steps;
  fs::path folder;
  bool was_there = false, is_whole = false;  ///< is_whole: with weights
  std::vector<std::pair<std::string, std::string>> lines;
  Json json;
};

Outcome run(TrialRequest request) {
  request.calibration.device = test::reference_device();
  request.measure.num_sequences = 1;
  RankSession session({});
  SilentDiagnostics silent;
  Outcome outcome;
  try_model(request, session, silent,
            {.estimated =
                 [&](const CalibrationPreview& preview) {
                   outcome.steps.push_back(std::to_string(preview.num_samples) + " samples");
                 },
             .done =
                 [&](const Trial& trial) {
                   outcome.steps.emplace_back("done");
                   outcome.folder = trial.result.output.folders.at(0).path;
                   outcome.was_there = is_there(outcome.folder);
                   outcome.is_whole = is_there(outcome.folder / "model.safetensors");
                   outcome.lines = trial_lines(trial);
                   outcome.json = to_json(trial);
                 }});
  session.done();
  return outcome;
}

TrialRequest request_of(const TextCheckpoint& files, const std::string& output) {
  TrialRequest request;
  request.calibration.model = files.path();
  request.calibration.dataset = files.text();
  request.calibration.output.output = output;
  return request;
}

}  // namespace

TEST_CASE("trial: advice follows the measurement, then the clipping of scale 1.0") {
  CHECK(advice_of(found(0.01, UnitScale::kAsGood)) == TrialAdvice::kCalibrate);
  CHECK(advice_of(found(0.001, UnitScale::kAsGood)) == TrialAdvice::kEither);
  CHECK(advice_of(found(0.001, UnitScale::kCoarse)) == TrialAdvice::kEither);
  CHECK(advice_of(found(0.001, UnitScale::kClips)) == TrialAdvice::kCalibrate);
  CHECK(advice_of(found(-0.01, UnitScale::kClips)) == TrialAdvice::kOtherData);
  CHECK(advice_of(found(0.01, UnitScale::kAsGood, 5)) == TrialAdvice::kMoreTokens);
}

TEST_CASE("trial: without an output nothing is kept, and one record of two is left to measure") {
  const TextCheckpoint files;
  const fs::path temporary = files.folder / "temporary";
  fs::create_directory(temporary);
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", temporary.c_str(), 1);
  const Outcome outcome = run(request_of(files, ""));
  CHECK(paths_in(temporary).empty());
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  CHECK(outcome.steps == std::vector<std::string>{"1 samples", "done"});
  CHECK(outcome.was_there);
  CHECK(outcome.folder.string().starts_with(temporary.string()));
  std::vector<std::string> labels;
  for (const auto& [label, text] : outcome.lines) {
    labels.push_back(label);
    CHECK(label.size() < 12);
  }
  CHECK(labels == std::vector<std::string>{"calibrated", "KV cache", "rounding", "scale 1.0",
                                           "measured", "KL", "perplexity", "verdict", "context",
                                           "advice"});
  CHECK(outcome.json.at("advice") == "more tokens");
  CHECK(outcome.json.at("calibration").at("num_samples") == 1);
  CHECK(outcome.json.at("cache_bytes_per_token").at("16-bit") ==
        2 * outcome.json.at("cache_bytes_per_token").at("fp8").get<int64_t>());
}

TEST_CASE("trial: an output is a whole checkpoint and stays") {
  const TextCheckpoint files;
  const Outcome outcome = run(request_of(files, (files.folder / "kept").string()));
  CHECK(is_there(files.folder / "kept" / "model.safetensors"));
  CHECK_FALSE(is_there(files.folder / "kept.kvcal-state"));
}

TEST_CASE("trial: a recipe of weights makes them, and one without a cache is refused") {
  const TextCheckpoint files;
  TrialRequest request = request_of(files, "");
  request.calibration.recipe = "fp8_w8a8_kv";
  const Outcome outcome = run(request);
  CHECK(outcome.steps == std::vector<std::string>{"1 samples", "done"});
  CHECK_FALSE(is_there(outcome.folder));
  CHECK(outcome.is_whole);
  request.calibration.recipe = "FP8_DYNAMIC";
  CHECK(test::message_of([&] { run(request); }) ==
        "--recipe FP8_DYNAMIC quantizes no K and V, expected one with a kv_cache_scheme");
}

TEST_CASE("trial: quantized sources of every kind keep their weights, and nothing is left") {
  const fs::path fixtures = test::tests_folder() / "fixtures";
  // Codes that compressed-tensors holds, those that nothing holds beside scales, and FP8.
  for (const char* name : {"quantized/awq", "quantized/gptq_4", "quantized/gptq_8",
                           "quantized/gpt_oss", "quantized/modelopt_nvfp4", "fp8/static_kv"}) {
    CAPTURE(name);
    const test::ScratchFolder scratch;
    test::write_file(scratch / "ids.jsonl",
                     "{\"input_ids\": [1, 9, 33, 51, 2, 8]}\n{\"input_ids\": [1, 4, 12, 57, 5]}\n");
    TrialRequest request;
    request.calibration.model = (fixtures / name).string();
    request.calibration.dataset = (scratch / "ids.jsonl").string();
    const Outcome outcome = run(request);
    CHECK(outcome.steps == std::vector<std::string>{"1 samples", "done"});
    CHECK(outcome.was_there);
    CHECK_FALSE(is_there(outcome.folder));
    CHECK_FALSE(outcome.is_whole);
    CHECK(outcome.json.at("measured").at("num_tokens") == 4);
    CHECK(outcome.json.at("measured").at("held_out") == true);
  }
}
