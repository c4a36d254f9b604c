#include "run/command_output.h"

#include "run/support/text_checkpoint.h"
#include "stored/weights.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::KeptLines;
using kvcal::test::message_of;
using kvcal::test::ScratchFolder;

namespace {

const fs::path kModel = test::model_fixture("qwen3");

ModelConfig config() {
  return read_model_config(ModelDir(kModel));
}

/// kv_cache_scales.json, with a scale for every layer of the model.
WrittenFolder scales_file(const ScratchFolder& folder) {
  Json layers = Json::object();
  for (int64_t layer = 0; layer < config().num_hidden_layers; ++layer)
    layers[std::to_string(layer)] = 0.125;
  const Json cache = {{"dtype", "float8_e4m3fn"}, {"scaling_factor", {{"0", layers}}}};
  const fs::path path = folder / "kv_cache_scales.json";
  test::write_file(path, dump_json(Json{{"model_type", "qwen3"}, {"kv_cache", cache}}));
  return {.format = "scales-json", .path = path};
}

}  // namespace

TEST_CASE("engines served: a file of scales is given to engines beside the model") {
  const ScratchFolder scratch;
  KeptLines diagnostics;
  OutputOptions options;
  options.engines = {"sglang"};
  const auto engines =
      engines_served({scales_file(scratch)}, config(), true, kModel.string(), options, diagnostics);
  REQUIRE(engines.size() == 1);
  CHECK(engines[0].outcome == LoadOutcome::kLoaded);
  CHECK(contains(engines[0].note, "--model-path " + kModel.string()));
  CHECK(contains(engines[0].note, scratch.path().string() + "/kv_cache_scales.json"));
  CHECK_NOTHROW(check_engines_asked(engines, options));
  CHECK(diagnostics.warnings.empty());
}

TEST_CASE("engines served: without --for every engine answers, and none ends the command") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  const auto engines =
      engines_served({scales_file(scratch)}, config(), true, kModel.string(), {}, silent);
  CHECK(engines.size() > 3);
  CHECK_NOTHROW(check_engines_asked(engines, {}));
}

TEST_CASE("engines served: overlays and outputs without scales are not asked about") {
  const ScratchFolder scratch;
  SilentDiagnostics silent;
  const WrittenFolder written = scales_file(scratch);
  WrittenFolder overlay = written;
  overlay.is_overlay = true;
  CHECK(engines_served({overlay}, config(), true, kModel.string(), {}, silent).empty());
  CHECK(engines_served({written}, config(), false, kModel.string(), {}, silent).empty());
  CHECK(engines_served({}, config(), true, kModel.string(), {}, silent).empty());
}

TEST_CASE("engines served: an output that cannot be read is a warning, and an error of --for") {
  const ScratchFolder scratch;
  const WrittenFolder written{.format = "compressed-tensors", .path = scratch / "gone"};
  KeptLines diagnostics;
  OutputOptions options;
  options.output = "OUT";
  options.engines = {"sglang"};
  const auto engines =
      engines_served({written}, config(), true, kModel.string(), options, diagnostics);
  REQUIRE(diagnostics.warnings.size() == 1);
  CHECK(contains(diagnostics.warnings[0], "the output was written"));
  REQUIRE(engines.size() == 1);
  CHECK(engines[0].outcome == LoadOutcome::kRefused);
  const std::string message = message_of([&] { check_engines_asked(engines, options); });
  CHECK(message.starts_with("OUT: was written, and is not for sglang ("));
  CHECK(engines_served({written}, config(), true, kModel.string(), {}, diagnostics).empty());
}

TEST_CASE("output text: the engines that load in one line and a command, or a line each") {
  const std::vector<ServedEngine> engines{
      {.name = "vllm",
       .title = "vLLM 1",
       .outcome = LoadOutcome::kLoaded,
       .note = "vllm serve OUT"},
      {.name = "tgi", .title = "TGI 2", .outcome = LoadOutcome::kLoaded, .note = "tgi OUT"},
      {.name = "a", .title = "A 3", .outcome = LoadOutcome::kRefused, .note = "it refuses scales"},
      {.name = "b", .title = "B 4", .outcome = LoadOutcome::kLost, .note = "no name"},
      {.name = "c", .title = "C 5", .outcome = LoadOutcome::kNotKnown, .note = ""}};
  const std::vector<WrittenFolder> folders{{.format = "tgi", .path = "OUT"}};
  CHECK(output_text(folders, engines, EngineLines::kLoading) ==
        "wrote tgi: OUT\n"
        "loaded by vLLM 1, TGI 2 (--verbose tells why, and what the others do)\n"
        "  $ vllm serve OUT\n");
  CHECK(output_text(folders, engines, EngineLines::kEach) ==
        "wrote tgi: OUT\nvLLM 1: loaded: vllm serve OUT\nTGI 2: loaded: tgi OUT\n"
        "A 3: refuses scales\nB 4: lost: no name\nC 5: not known\n");
  CHECK(
      output_text({}, {engines.back()}, EngineLines::kLoading) ==
      "engines: not known, none was run with such models (--verbose tells why, and what the others "
      "do)\n");
  CHECK(output_text(folders, {}, EngineLines::kLoading) == "wrote tgi: OUT\n");
}
