// A calibration and what follows it, each by one call and without a process.
#include "run/calibrate_checkpoint.h"

#include "core/interrupt.h"
#include "run/convert_checkpoint.h"
#include "run/scales_from_statistics.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::ScratchFolder;

namespace {

const fs::path kTests = test::tests_folder();
const std::string kModel = (kTests / "fixtures/models/llama").string();
const std::string kRecipe = (test::source_folder() / "recipes/fp8_kv_tensor.yaml").string();

CalibrateRequest request_in(const ScratchFolder& scratch, const std::string& output = "out") {
  CalibrateRequest request;
  request.model = kModel;
  request.recipe = kRecipe;
  request.dataset = (kTests / "cli/data/small.jsonl").string();
  request.output.formats = {"compressed-tensors"};
  request.output.output = (scratch / output).string();
  request.device.device = "reference";
  request.reproducible = true;
  request.on_shares = [](const auto&) { FAIL("a process alone has no parts of ranks"); };
  request.version = "test";
  request.resume_command = "again";
  return request;
}

/// The result, of a process alone.
CalibrationResult calibrated(const CalibrateRequest& request) {
  RankSession session({.timeout = std::chrono::minutes(10),
                       .say = [](const std::string& message) { FAIL(message); }});
  SilentDiagnostics silent;
  std::optional<CalibrationResult> result;
  calibrate_checkpoint(request, session, silent,
                       [&](const CalibrationResult& written) { result = written; });
  session.done();
  REQUIRE(result);
  return *result;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

/// Asks for a stop at the first progress.
class Stopping : public SilentDiagnostics {
 public:
  void progress(std::string_view, int64_t, int64_t, std::string_view) override {
    request_interrupt();
  }
};

}  // namespace

TEST_CASE("run: a calibration gives values and writes the output they are of") {
  const ScratchFolder scratch;
  const CalibrationResult result = calibrated(request_in(scratch));
  CHECK(std::ssize(result.calibration.layers) == result.config.num_hidden_layers);
  for (const AttentionCalibration& layer : result.calibration.layers) {
    REQUIRE(layer.k.scales.size() == 1);
    CHECK(layer.k.scales[0].value > 0.0f);
  }
  REQUIRE(result.folders.size() == 1);
  CHECK(result.folders[0].path == scratch / "out");
  CHECK(read_text(scratch / "out/kvcal_manifest.json") == dump_json(result.manifest));
  CHECK(fs::exists(scratch / "out/model.safetensors"));
  CHECK(!fs::exists(scratch / "out.kvcal-state"));
}

TEST_CASE("run: two calibrations of the same inputs write the same bytes") {
  const ScratchFolder scratch;
  CalibrateRequest batches = request_in(scratch, "batches");
  batches.batch_tokens = 7;
  batches.state.folder = "none";
  calibrated(request_in(scratch));
  calibrated(batches);
  CHECK(test::contents_of(scratch / "out") == test::contents_of(scratch / "batches"));
}

TEST_CASE("run: what can be refused is refused before the work, and nothing is written") {
  const ScratchFolder scratch;
  const auto refused = [&](const std::function<void(CalibrateRequest&)>& change) {
    CalibrateRequest request = request_in(scratch);
    change(request);
    const std::string message = message_of([&] { calibrated(request); });
    CHECK(test::contents_of(scratch.path()).empty());
    return message;
  };
  CHECK(refused([](CalibrateRequest& request) {
          request.dataset.clear();
        }).find("needs text to calibrate with") != std::string::npos);
  CHECK(refused([](CalibrateRequest& request) {
          request.kv_forward = "exakt";
        }).find("--kv-forward") != std::string::npos);
  CHECK(refused([](CalibrateRequest& request) {
          request.output.output = kModel + "/out";
        }).find("source folder") != std::string::npos);
  CHECK(refused([](CalibrateRequest& request) {
          request.state.folder = "none";
          request.state.resumes = true;
        }).find("--resume needs a state") != std::string::npos);
}

TEST_CASE("run: an interrupted calibration leaves no output, and goes on to the same bytes") {
  const ScratchFolder scratch;
  calibrated(request_in(scratch, "whole"));
  CalibrateRequest request = request_in(scratch);
  request.state.share = "100%";
  {
    RankSession session({.timeout = std::chrono::minutes(10),
                         .say = [](const std::string& message) { FAIL(message); }});
    Stopping stopping;
    CHECK_THROWS_AS(calibrate_checkpoint(request, session, stopping,
                                         [](const CalibrationResult&) { FAIL("was written"); }),
                    Interrupted);
    session.interrupted();
    clear_interrupt();
  }
  CHECK(!fs::exists(scratch / "out"));
  request.state.resumes = true;
  calibrated(request);
  CHECK(test::contents_of(scratch / "out") == test::contents_of(scratch / "whole"));
}

TEST_CASE("run: kept statistics give the scales of the run") {
  const ScratchFolder scratch;
  CalibrateRequest request = request_in(scratch);
  request.kv_forward = "exact";
  request.save_statistics = (scratch / "seen.safetensors").string();
  const CalibrationResult run = calibrated(request);
  SilentDiagnostics silent;
  ScalesRequest again;
  again.statistics = request.save_statistics;
  again.recipe = kRecipe;
  again.version = "test";
  const ScalesResult scales = scales_from_statistics(again, silent);
  REQUIRE(scales.calibration.layers.size() == run.calibration.layers.size());
  for (size_t i = 0; i < run.calibration.layers.size(); ++i) {
    CHECK(scales.calibration.layers[i].k.scales[0].value ==
          run.calibration.layers[i].k.scales[0].value);
    CHECK(scales.calibration.layers[i].v.scales[0].value ==
          run.calibration.layers[i].v.scales[0].value);
  }
  CHECK(scales.folders.empty());
}

TEST_CASE("run: a conversion tells what is lost, and an overlay goes on the model") {
  const ScratchFolder scratch;
  calibrated(request_in(scratch));
  SilentDiagnostics silent;
  ConversionRequest conversion;
  conversion.checkpoint = (scratch / "out").string();
  conversion.version = "test";
  conversion.output.formats = {"tgi"};
  conversion.output.output = (scratch / "tgi").string();
  const ConversionResult merged = convert_checkpoint(conversion, silent);
  CHECK(merged.scales_form == "compressed-tensors");
  REQUIRE(merged.losses.size() == 1);
  CHECK(merged.losses[0].layers.size() == merged.num_scaled_layers);

  conversion.output.formats = {"compressed-tensors"};
  conversion.output.output = (scratch / "overlay").string();
  conversion.output.scales_only = true;
  convert_checkpoint(conversion, silent);
  ConversionRequest applied;
  applied.version = "test";
  applied.output.output = (scratch / "applied").string();
  apply_overlay(conversion.output.output, kModel, applied, silent);
  CHECK(read_text(scratch / "applied/model.safetensors").find("self_attn.k_scale") !=
        std::string::npos);
  CHECK(message_of([&] {
          apply_overlay(conversion.output.output, (scratch / "out").string(), applied, silent);
        }).find("has KV scales already") != std::string::npos);
}
