#include "run/kl_budget.h"

#include "run/calibrate_checkpoint.h"
#include "run/evaluation.h"
#include "run/support/text_checkpoint.h"
#include "run/trial.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::TextCheckpoint;

namespace {

/// A model of two layers, of which one in 16 bits lowers the KL of these sequences.
struct BudgetSetting {
  CalibrateRequest request(const std::string& output) const {
    CalibrateRequest request;
    request.model = files.path();
    request.dataset = (test::tests_folder() / "cli/data/data.jsonl").string();
    request.device = test::reference_device();
    request.output.formats = {"compressed-tensors"};
    request.output.output = (files.folder / output).string();
    request.samples.num_calibration_samples = 1;
    request.samples.shuffle_seed = 1;
    request.score.num_sequences = 2;
    request.reproducible = true;
    request.version = "test";
    return request;
  }
  TextCheckpoint files;
};

CalibrationResult calibrated(const CalibrateRequest& request) {
  RankSession session({});
  SilentDiagnostics silent;
  std::optional<CalibrationResult> result;
  calibrate_checkpoint(request, session, silent,
                       {.written = [&](const CalibrationResult& written) { result = written; }});
  session.done();
  REQUIRE(result);
  return *result;
}

KlBudgetOutcome kept(CalibrateRequest request, double budget) {
  request.kl_budget = budget;
  request.output.overwrite = true;
  const CalibrationResult result = calibrated(request);
  REQUIRE(result.budget);
  REQUIRE(result.budget->layers);
  CHECK(result.output.manifest.at("kl_budget") == to_json(*result.budget));
  return *result.budget;
}

double kl_of(const CalibrateRequest& request, int64_t num_skipped) {
  EvalOptions options;
  options.model = request.output.output;
  options.dataset = request.dataset;
  options.device = request.device;
  options.sequences = {.num_sequences = request.score.num_sequences,
                       .max_seq_length = request.score.max_seq_length,
                       .num_skipped = num_skipped,
                       .shuffle_seed = request.samples.shuffle_seed};
  SilentDiagnostics silent;
  const EvalResult result = evaluate_likelihood(options, {.has_reference = true}, silent);
  return *result.report.variants.at(0).all.kl_mean;
}

}  // namespace

TEST_CASE("kl_budget: a wide budget leaves every layer in FP8") {
  const BudgetSetting setting;
  const KlBudgetOutcome outcome = kept(setting.request("out"), 100);
  CHECK(outcome.layers->empty());
  CHECK(outcome.measured.size() == 2);  // with none and with one: half of the layers
  CHECK(contains(budget_text(outcome), " with every layer in FP8; the budget is 100 ("));
}

TEST_CASE("kl_budget: the output is that of a run that is told of the layers") {
  const BudgetSetting setting;
  for (const std::string forward : {"quantized", "exact"}) {
    INFO(forward);
    CalibrateRequest request = setting.request("found-" + forward);
    request.kv_forward = forward;
    const KlBudgetOutcome wide = kept(request, 100);
    const double none = *wide.measured[0].result.kl_mean, one = *wide.measured[1].result.kl_mean;
    REQUIRE(one < none);
    const KlBudgetOutcome outcome = kept(request, (one + none) / 2);
    REQUIRE(outcome.layers->size() == 1);
    CHECK(*outcome.result.kl_mean <= (one + none) / 2);
    CHECK(contains(budget_text(outcome), " in 16 bits, "));
    CalibrateRequest told = setting.request("told-" + forward);
    told.kv_forward = forward;
    told.skip_layers = *outcome.layers;
    calibrated(told);
    for (const char* name : {"model.safetensors", "config.json", "recipe.yaml", "vllm.yaml"}) {
      INFO(name);
      CHECK(read_text(fs::path(request.output.output) / name) ==
            read_text(fs::path(told.output.output) / name));
    }
    CHECK(kl_of(request, outcome.is_held_out ? 1 : 0) == *outcome.result.kl_mean);
  }
}

TEST_CASE("kl_budget: where half of the layers are too few, nothing is written") {
  const BudgetSetting setting;
  CalibrateRequest request = setting.request("out");
  request.kl_budget = 0;
  std::string message;
  try {
    calibrated(request);
  } catch (const BudgetMissed& missed) {
    message = missed.message();
  }
  CHECK(message.starts_with("--kl-budget 0: the mean KL is "));
  CHECK(contains(message, " with 1 of 2 layers in 16 bits, which is as many as may stay so, and "));
  CHECK_FALSE(fs::exists(request.output.output));
}

TEST_CASE("kl_budget: formats and recipes for which it has no answer are refused") {
  const BudgetSetting setting;
  CalibrateRequest request = setting.request("out");
  request.kl_budget = 0.01;
  request.output.formats = {"scales-json"};
  CHECK(contains(message_of([&] { calibrated(request); }), "is ignored and has no scale"));
  request.output.formats = {"compressed-tensors"};
  request.recipe = "fp8_w8a8_kv";
  CHECK(contains(message_of([&] { calibrated(request); }),
                 "--kl-budget measures the cache alone, and fp8_w8a8_kv quantizes weights"));
}

TEST_CASE("kl_budget: layers are left out with those that the recipe ignores") {
  const BudgetSetting setting;
  CalibrateRequest request = setting.request("out");
  request.skip_layers = {1};
  const CalibrationResult result = calibrated(request);
  CHECK_FALSE(result.calibration.layers.at(0).ignored);
  CHECK(result.calibration.layers.at(1).ignored);
  REQUIRE(result.summary);
  CHECK(result.summary->layers_16_bit == std::vector<int64_t>{1});
  CHECK(2 * result.summary->cache_bytes() == 3 * result.summary->cache_bytes_fp8);
  request.skip_layers = {0, 1};
  CHECK(contains(message_of([&] { calibrated(request); }),
                 "ignore leaves no attention module to calibrate"));
  request.skip_layers = {7};
  CHECK(contains(message_of([&] { calibrated(request); }),
                 "layer 7 is none of the layers with K and V, which are 0-1"));
}

TEST_CASE("kl_budget: a trial proposes the layers and writes nothing") {
  const BudgetSetting setting;
  CalibrateRequest request = setting.request("");
  request.output = {};
  request.kl_budget = 100;
  request.score = {.num_sequences = 1, .max_seq_length = 64, .every_cache = false};
  RankSession session({});
  SilentDiagnostics silent;
  std::optional<Trial> trial;
  try_model(request, session, silent,
            {.estimated = [](const CalibrationPreview&) {},
             .done = [&](const Trial& done) { trial = done; }});
  session.done();
  REQUIRE(trial);
  REQUIRE(trial->budget);
  CHECK(trial->budget->layers == std::vector<int64_t>{});
  CHECK(to_json(*trial).at("kl_budget").at("budget") == 100);
  CHECK_FALSE(trial->result.budget);
}
