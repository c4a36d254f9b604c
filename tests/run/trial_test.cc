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
  bool was_there = false;
  std::vector<std::pair<std::string, std::string>> lines;
  Json json;
};

Outcome run(const TextCheckpoint& files, const std::string& output) {
  TrialRequest request;
  request.calibration.model = files.path();
  request.calibration.dataset = files.text();
  request.calibration.device = test::reference_device();
  request.calibration.output.output = output;
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
                   outcome.lines = trial_lines(trial);
                   outcome.json = to_json(trial);
                 }});
  session.done();
  return outcome;
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
  const Outcome outcome = run(files, "");
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
  const Outcome outcome = run(files, (files.folder / "kept").string());
  CHECK(is_there(files.folder / "kept" / "model.safetensors"));
  CHECK_FALSE(is_there(files.folder / "kept.kvcal-state"));
}
