// A calibration and what follows it, each by one call and without a process.
#include "run/calibrate_checkpoint.h"

#include "core/interrupt.h"
#include "run/convert_checkpoint.h"
#include "run/scales_from_statistics.h"
#include "run/support/text_checkpoint.h"
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
                       {.written = [&](const CalibrationResult& written) { result = written; }});
  session.done();
  REQUIRE(result);
  CHECK(result->shares.empty());  // a process alone has no parts of ranks
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

/// Asks for a stop at the first progress, or after so many.
class Stopping : public SilentDiagnostics {
 public:
  explicit Stopping(int64_t steps = 0) : steps_left_(steps) {}
  void progress(std::string_view, int64_t, int64_t, std::string_view) override {
    if (steps_left_-- == 0) request_interrupt();
  }

 private:
  int64_t steps_left_;
};

}  // namespace

namespace {

/// A copy of the Qwen3 fixture whose model_type no family has.
fs::path renamed_qwen3(const ScratchFolder& scratch) {
  const fs::path from = kTests / "fixtures/models/qwen3", to = scratch / "brandnew";
  fs::create_directory(to);
  fs::copy_file(from / "model.safetensors", to / "model.safetensors");
  Json config = parse_json(read_text(from / "config.json"));
  config["model_type"] = "brandnew";
  config["architectures"] = {"BrandnewForCausalLM"};
  test::write_file(to / "config.json", dump_json(config));
  return to;
}

/// Token ids, as the fixture has no tokenizer.
std::string ids_file(const ScratchFolder& scratch) {
  test::write_file(scratch / "ids.jsonl",
                   "{\"input_ids\": [1, 9, 33, 71, 2, 8]}\n{\"input_ids\": [1, 4, 120, 77]}\n");
  return (scratch / "ids.jsonl").string();
}

}  // namespace

TEST_CASE("run: a renamed Qwen3 gets Qwen3's scales with --family qwen3") {
  const ScratchFolder scratch;
  CalibrateRequest request = request_in(scratch, "known");
  request.model = (kTests / "fixtures/models/qwen3").string();
  request.dataset = ids_file(scratch);
  const CalibrationResult known = calibrated(request);
  request = request_in(scratch, "chosen");
  request.model = renamed_qwen3(scratch).string();
  request.dataset = ids_file(scratch);
  CHECK(test::contains(message_of([&] { calibrated(request); }),
                       "model_type 'brandnew' is not supported"));
  request.family = choose_family("qwen3");
  request.save_statistics = (scratch / "statistics.safetensors").string();
  request.kv_forward = "exact";
  CHECK_FALSE(calibrated(request).calibration.layers.empty());
  request.save_statistics.clear();
  request.kv_forward = "quantized";
  request.output.overwrite = true;
  const CalibrationResult chosen = calibrated(request);
  CHECK(chosen.output.manifest.at("layers") == known.output.manifest.at("layers"));
  CHECK(read_text(scratch / "chosen/model.safetensors") ==
        read_text(scratch / "known/model.safetensors"));
  CHECK(chosen.output.manifest.at("model").at("family") == "qwen3");
  CHECK(chosen.output.manifest.at("model").at("model_type") == "brandnew");
  CHECK_FALSE(known.output.manifest.at("model").contains("family"));
  const Json config = parse_json(read_text(scratch / "chosen/config.json"));
  CHECK(config.at("model_type") == "brandnew");
  CHECK(config.at("architectures") == Json{"BrandnewForCausalLM"});
  // What reads the output needs the family, too.
  SilentDiagnostics silent;
  ConversionRequest conversion;
  conversion.checkpoint = (scratch / "chosen").string();
  conversion.output.formats = {"tgi"};
  conversion.output.output = (scratch / "converted").string();
  conversion.version = "test";
  CHECK(test::contains(message_of([&] { convert_checkpoint(conversion, silent); }), "brandnew"));
  conversion.family = request.family;
  CHECK(convert_checkpoint(conversion, silent).output.manifest.at("conversion").at("family") ==
        "qwen3");
}

TEST_CASE("run: scales from statistics take the family that ran") {
  const ScratchFolder scratch;
  CalibrateRequest request = request_in(scratch);
  request.model = renamed_qwen3(scratch).string();
  request.dataset = ids_file(scratch);
  request.family = choose_family("qwen3");
  request.save_statistics = (scratch / "statistics.safetensors").string();
  request.kv_forward = "exact";
  const CalibrationResult ran = calibrated(request);
  SilentDiagnostics silent;
  ScalesRequest scales;
  scales.statistics = request.save_statistics;
  scales.recipe = kRecipe;
  scales.version = "test";
  CHECK(test::contains(message_of([&] { scales_from_statistics(scales, silent); }), "brandnew"));
  scales.family = request.family;
  const CalibrationResult made = scales_from_statistics(scales, silent);
  CHECK(made.output.manifest.at("model").at("family") == "qwen3");
  REQUIRE(made.calibration.layers.size() == ran.calibration.layers.size());
  for (size_t i = 0; i < made.calibration.layers.size(); ++i)
    CHECK(made.calibration.layers[i].k.scales[0].value ==
          ran.calibration.layers[i].k.scales[0].value);
  // The same tensors, read as another family of the same name from a file.
  Architecture described = *scales.family.architecture;
  described.model_types.clear();
  scales.family.architecture = &described;
  scales.family.file_sha256 = "1234";
  CHECK(test::contains(message_of([&] { scales_from_statistics(scales, silent); }),
                       "the family that ran is qwen3, the one given here is qwen3 of a file"));
}

TEST_CASE("run: a calibration gives values and writes the output they are of") {
  const ScratchFolder scratch;
  const CalibrationResult result = calibrated(request_in(scratch));
  CHECK(std::ssize(result.calibration.layers) == result.config.num_hidden_layers);
  for (const AttentionCalibration& layer : result.calibration.layers) {
    REQUIRE(layer.k.scales.size() == 1);
    CHECK(layer.k.scales[0].value > 0.0f);
  }
  REQUIRE(result.output.folders.size() == 1);
  CHECK(result.output.folders[0].path == scratch / "out");
  CHECK(read_text(scratch / "out/kvcal_manifest.json") == dump_json(result.output.manifest));
  CHECK(fs::exists(scratch / "out/model.safetensors"));
  CHECK(!fs::exists(scratch / "out.kvcal-state"));
}

TEST_CASE("run: the token with the largest value is named where it is one, of text") {
  const test::TextCheckpoint files;
  const std::vector<std::string> records{"sea", "ship", "calm"};
  std::string lines;
  for (const std::string& record : records) lines += Json({{"text", record}}).dump() + '\n';
  test::write_file(files.folder / "records.jsonl", lines);
  const ScratchFolder scratch;
  CalibrateRequest request = request_in(scratch);
  request.model = files.path();
  request.dataset = (files.folder / "records.jsonl").string();
  int64_t num_named = 0;
  const Json named = calibrated(request).output.manifest;
  for (const Json& layer : named.at("layers"))
    for (const char* side : {"k_largest", "v_largest"}) {
      const Json& place = layer.at("positions").at(side);
      const std::string& record = records.at(place.at("record").get<size_t>());
      CHECK(place.at("first").get<int64_t>() <= place.at("last").get<int64_t>());
      CHECK(place.contains("text") == (place.at("first") == place.at("last")));
      if (!place.contains("text")) continue;
      ++num_named;
      INFO(place.dump());
      CHECK(test::contains(record, place.at("text").get<std::string>()));
      if (place.at("first") == 0) CHECK(record.starts_with(place.at("text").get<std::string>()));
    }
  CHECK(num_named > 0);
  // Data of token ids has no text.
  request.dataset = ids_file(files.folder);
  request.output.overwrite = true;
  const Json unnamed = calibrated(request).output.manifest;
  for (const Json& layer : unnamed.at("layers"))
    CHECK_FALSE(layer.at("positions").at("k_largest").contains("text"));
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
    CHECK_THROWS_AS(
        calibrate_checkpoint(request, session, stopping,
                             {.written = [](const CalibrationResult&) { FAIL("was written"); }}),
        Interrupted);
    session.interrupted();
    clear_interrupt();
  }
  CHECK(!fs::exists(scratch / "out"));
  request.state.resumes = true;
  calibrated(request);
  CHECK(test::contents_of(scratch / "out") == test::contents_of(scratch / "whole"));
}

TEST_CASE("run: what cannot be drawn leaves neither output nor statistics, and the state goes on") {
  const ScratchFolder scratch;
  CalibrateRequest request = request_in(scratch);
  request.save_statistics = (scratch / "kept.safetensors").string();
  request.kv_forward = "exact";
  request.state.share = "100%";
  SilentDiagnostics silent;
  {
    RankSession session({.timeout = std::chrono::minutes(10),
                         .say = [](const std::string& message) { FAIL(message); }});
    const auto staged = [&](const CalibrationResult&, const fs::path& folder, StagedOutputs&) {
      CHECK(fs::exists(folder / "kvcal_manifest.json"));
      CHECK(!fs::exists(scratch / "out"));
      fail("no room for the page");
    };
    CHECK(test::contains(message_of([&] {
                           calibrate_checkpoint(
                               request, session, silent,
                               {.staged = staged,
                                .written = [](const CalibrationResult&) { FAIL("was written"); }});
                         }),
                         "no room for the page"));
    session.done();
  }
  CHECK(!fs::exists(scratch / "out"));
  CHECK(!fs::exists(scratch / "kept.safetensors"));
  request.state.resumes = true;
  calibrated(request);
  CHECK(fs::exists(scratch / "out"));
  CHECK(fs::exists(scratch / "kept.safetensors"));
}

namespace {

/// Whether the run was interrupted, so many steps after its beginning, before it wrote its output.
bool is_stopped_after(int64_t steps, const CalibrateRequest& request) {
  RankSession session({.timeout = std::chrono::minutes(10),
                       .say = [](const std::string& message) { FAIL(message); }});
  Stopping stopping(steps);
  try {
    calibrate_checkpoint(request, session, stopping, {.written = [](const CalibrationResult&) {}});
    session.done();
  } catch (const Interrupted&) {
    session.interrupted();
    clear_interrupt();
    return true;
  }
  clear_interrupt();  // asked for when nothing was left to stop
  return false;
}

}  // namespace

TEST_CASE("run: wherever a calibration of a draft layer stops, it goes on to the same bytes") {
  const std::string model = GENERATE("glm4_moe", "deepseek_v3", "qwen3_next", "qwen3_5");
  const std::string forward = GENERATE("quantized", "exact");
  INFO(model << " " << forward);
  const ScratchFolder scratch;
  test::write_file(scratch / "ids.jsonl",
                   "{\"input_ids\": [1, 9, 33, 41, 2, 8]}\n{\"input_ids\": [5]}\n"
                   "{\"input_ids\": [1, 4, 12, 27]}\n");
  const auto request_of = [&](const std::string& output) {
    CalibrateRequest request = request_in(scratch, output);
    request.model = (kTests / "fixtures/drafts" / model).string();
    request.dataset = (scratch / "ids.jsonl").string();
    request.kv_forward = forward;
    request.batch_tokens = 4;
    request.state.share = "100%";
    return request;
  };
  const CalibrationResult whole = calibrated(request_of("whole"));
  const int64_t num_layers = whole.config.num_hidden_layers;
  REQUIRE(whole.calibration.layers.back().layer == num_layers);
  const auto bytes = test::contents_of(scratch / "whole");
  int64_t stops = 0;
  for (bool stopped = true; stopped; ++stops) {
    INFO("stopped after " << stops << " steps");
    CalibrateRequest request = request_of("out" + std::to_string(stops));
    stopped = is_stopped_after(stops, request);
    request.state.resumes = true;
    if (stopped) {
      CHECK(!fs::exists(request.output.output));
      calibrated(request);
    }
    CHECK(test::contents_of(request.output.output) == bytes);
  }
  // A step is a batch of a layer; the draft has as many as the others.
  CHECK(stops > 2 * num_layers);
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
  const CalibrationResult scales = scales_from_statistics(again, silent);
  REQUIRE(scales.calibration.layers.size() == run.calibration.layers.size());
  for (size_t i = 0; i < run.calibration.layers.size(); ++i) {
    CHECK(scales.calibration.layers[i].k.scales[0].value ==
          run.calibration.layers[i].k.scales[0].value);
    CHECK(scales.calibration.layers[i].v.scales[0].value ==
          run.calibration.layers[i].v.scales[0].value);
  }
  CHECK(scales.output.folders.empty());
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
  CHECK(merged.scales_format == "compressed-tensors");
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
