#include "run/trial.h"

#include <cmath>
#include <cstdlib>
#include <map>

#include "core/folder.h"
#include "run/support/text_checkpoint.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::KeptLines;
using kvcal::test::TextCheckpoint;

namespace {

/// What a measurement may have found of one cache.
struct Cell {
  double kl, error, increase;
  bool clips;
};

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const double kl : {0.0, 0.006, 0.0195, 0.03, 0.099, 0.101, 0.37, std::nan("")})
    for (const double error : {0.0, 0.02})
      for (const double increase : {-0.01, 0.004, 0.03, 0.34})
        for (const bool clips : {false, true}) all.push_back({kl, error, increase, clips});
  return all;
}

Likelihood likelihood_of(const Cell& cell) {
  Likelihood result;
  result.num_tokens = 5000;
  result.kl_mean = cell.kl;
  result.kl_stderr = cell.error;
  result.top1_agreement = 0.9;
  result.reference_perplexity = 20;
  result.perplexity = 20 * (1 + cell.increase);
  result.perplexity_increase = cell.increase;
  result.increase_stderr = cell.error / 10;
  return result;
}

/// gain: of the calibrated scales, in standard errors.
Trial trial_of(const Cell& unit, const Cell& calibrated, double gain) {
  Trial trial{.result = {.config = {}}, .measured = {}};
  ScaleSummary& summary = trial.result.summary.emplace();
  summary.cache_bytes_fp8 = 64;
  summary.unit = unit.clips ? UnitScale::kClips : UnitScale::kAsGood;
  trial.measured.calibrated = likelihood_of(calibrated);
  trial.measured.unit = likelihood_of(unit);
  trial.measured.calibrated_clipped = calibrated.clips ? 0.01 : 0;
  trial.measured.unit_clipped = unit.clips ? 1e-6 : 0;
  trial.measured.gain = {.mean = gain * 0.001, .standard_error = 0.001};
  return trial;
}

struct Outcome {
  std::vector<std::string> steps;
  fs::path folder;
  bool was_there = false, is_whole = false;  ///< is_whole: with weights
  LabelledLines lines;
  Json json;
};

Outcome run(CalibrateRequest request) {
  request.device = test::reference_device();
  request.score.num_sequences = 1;
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
                   outcome.lines = trial_lines(trial, true);
                   outcome.json = to_json(trial);
                 }});
  session.done();
  return outcome;
}

CalibrateRequest request_of(const TextCheckpoint& files, const std::string& output) {
  CalibrateRequest request = trial_request();
  request.model = files.path();
  request.dataset = files.text();
  request.output.output = output;
  return request;
}

}  // namespace

TEST_CASE("trial: no advice to serve comes with a verdict against it, whatever was measured") {
  std::map<TrialAdvice, int> seen;
  for (const Cell& unit : cells())
    for (const Cell& calibrated : cells())
      for (const double gain : {-3.0, 0.0, 3.0}) {
        const Trial trial = trial_of(unit, calibrated, gain);
        const TrialFindings found = findings_of(trial);
        const TrialAdvice advice = advice_of(found);
        const Damage best = std::min(found.unit.damage, found.calibrated.damage);
        const DamageVerdict certain{.damage = Damage::kFine, .needs_more_text = false};
        const std::string text = trial_lines(trial, true).front().second;
        CAPTURE(unit.kl, unit.error, unit.increase, unit.clips, calibrated.kl, calibrated.error,
                calibrated.increase, calibrated.clips, gain, text);
        ++seen[advice];
        bool is_right = true;
        if (advice == TrialAdvice::kUnit) is_right = found.unit == certain && !unit.clips;
        if (advice == TrialAdvice::kCalibrate) is_right = found.calibrated == certain;
        // Damage is told by what to do, however large the errors and whatever the difference.
        is_right =
            is_right && (best == Damage::kDoNotServe) == (advice == TrialAdvice::kDoNotServe);
        is_right = is_right && (best == Damage::kNoticeable) == (advice == TrialAdvice::kWeigh);
        const bool says_so =
            text.starts_with("no scales are needed") || text.starts_with("serve calibrated scales");
        is_right = is_right &&
                   says_so == (advice == TrialAdvice::kUnit || advice == TrialAdvice::kCalibrate);
        REQUIRE(is_right);
      }
  for (const TrialAdvice advice :
       {TrialAdvice::kUnit, TrialAdvice::kCalibrate, TrialAdvice::kWeigh, TrialAdvice::kDoNotServe,
        TrialAdvice::kOtherData, TrialAdvice::kMoreTokens})
    CHECK(seen[advice] > 0);
}

TEST_CASE("trial: of two fine caches the difference decides, then the clipping of scale 1.0") {
  const auto advice = [](const Cell& unit, const Cell& calibrated, double gain) {
    return advice_of(findings_of(trial_of(unit, calibrated, gain)));
  };
  const Cell fine{.kl = 0.006, .error = 0, .increase = 0, .clips = false};
  const Cell clips{.kl = 0.006, .error = 0, .increase = 0, .clips = true};
  const Cell noticeable{.kl = 0.03, .error = 0, .increase = 0, .clips = false};
  CHECK(advice(fine, fine, 3) == TrialAdvice::kCalibrate);
  CHECK(advice(fine, fine, 0) == TrialAdvice::kUnit);
  CHECK(advice(fine, fine, -3) == TrialAdvice::kUnit);
  CHECK(advice(clips, fine, 0) == TrialAdvice::kCalibrate);
  CHECK(advice(clips, fine, -3) == TrialAdvice::kOtherData);
  CHECK(advice(clips, noticeable, -3) == TrialAdvice::kOtherData);
  CHECK(advice(noticeable, fine, 3) == TrialAdvice::kCalibrate);
  CHECK(advice(fine, noticeable, -3) == TrialAdvice::kUnit);
  Trial few = trial_of(fine, fine, 0);
  few.measured.unit.num_tokens = few.measured.calibrated.num_tokens = 99;
  CHECK(advice_of(findings_of(few)) == TrialAdvice::kMoreTokens);
}

TEST_CASE("trial: the numbers of Qwen2.5-Coder-1.5B are no advice to serve") {
  // KL 0.37 and +34 % with calibrated scales, +27 % with 1.0, which clips nothing.
  const Cell unit{.kl = 0.3, .error = 0.01, .increase = 0.27, .clips = false};
  const Cell calibrated{.kl = 0.37, .error = 0.01, .increase = 0.34, .clips = false};
  const auto lines = trial_lines(trial_of(unit, calibrated, 0), true);
  CHECK(lines.at(0) == std::pair<std::string, std::string>(
                           "advice",
                           "do not serve this model with an FP8 cache of these scales or of 1.0: "
                           "take a remedy"));
  CHECK(lines.at(1).second ==
        "with these scales do not serve so: KL 0.3700, perplexity +34.00 % (limits: 0.1, +5 %)");
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
  CHECK(labels == std::vector<std::string>{"advice", "verdict", "verdict 1.0", "difference",
                                           "measured", "KL", "perplexity", "calibrated", "KV cache",
                                           "rounding", "KL budget", "attention", "scale 1.0",
                                           "margin 1.0", "context"});
  CHECK(outcome.json.at("advice") == "weigh");  // few tokens, and what they show is not fine
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
  CalibrateRequest request = request_of(files, "");
  request.recipe = "fp8_w8a8_kv";
  const Outcome outcome = run(request);
  CHECK(outcome.steps == std::vector<std::string>{"1 samples", "done"});
  CHECK_FALSE(is_there(outcome.folder));
  CHECK(outcome.is_whole);
  request.recipe = "FP8_DYNAMIC";
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
    CalibrateRequest request = trial_request();
    request.model = (fixtures / name).string();
    request.dataset = (scratch / "ids.jsonl").string();
    const Outcome outcome = run(request);
    CHECK(outcome.steps == std::vector<std::string>{"1 samples", "done"});
    CHECK(outcome.was_there);
    CHECK_FALSE(is_there(outcome.folder));
    CHECK_FALSE(outcome.is_whole);
    CHECK(outcome.json.at("measured").at("num_tokens") == 4);
    CHECK(outcome.json.at("measured").at("held_out") == true);
  }
}
