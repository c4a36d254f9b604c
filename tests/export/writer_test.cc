#include "export/writer.h"

#include <limits>

#include "export/export_case.h"
#include "stored/read_model_config.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// check_calibration's message after a change to a good calibration of two layers with two heads.
template <class Change>
std::string message_after(Change change) {
  Calibration calibration = calibration_of(export_case("single_head"));
  change(calibration);
  return message_of([&] { check_calibration(calibration); });
}

}  // namespace

TEST_CASE("check_calibration: every layer that is not ignored has finite positive scales") {
  CHECK(message_after([](Calibration&) {}) == "no error");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, std::string>> bad{
      {0.0f, "0"},
      {-1.0f, "-1"},
      {kInfinity, "inf"},
      {std::numeric_limits<float>::quiet_NaN(), "nan"}};
  for (const auto& [value, shown] : bad)
    CHECK(message_after([v = value](Calibration& c) { c.layers[1].v.scales[1].value = v; }) ==
          "model.layers.1.self_attn: V: head 1: scale " + shown +
              ", expected a scale from 1.2e-38 to 5.9e33");
  CHECK(message_after([](Calibration& c) { c.layers[0].k.scales.clear(); }) ==
        "model.layers.0.self_attn: K: has no scale");
  CHECK(message_after([](Calibration& c) {
          c.layers[0].k.scales.clear();
          c.layers[0].ignored = true;
        }) == "no error");
}

TEST_CASE("check_calibration: the number of scales fits strategy and heads") {
  CHECK(message_after([](Calibration& c) { c.kv_args.strategy = Strategy::kTensor; }) ==
        "model.layers.0.self_attn: K: has 2 scales, strategy tensor has one");
  CHECK(message_after([](Calibration& c) { c.layers[0].v.scales.pop_back(); }) ==
        "model.layers.0.self_attn: 2 scales of K, 1 of V");
  CHECK(message_after([](Calibration& c) { c.layers[1].k.head_ranges.resize(3); }) ==
        "model.layers.1.self_attn: K: has 2 scales for 3 heads");
  CHECK(message_after([](Calibration& c) { c.kv_args.strategy = Strategy::kToken; }) ==
        "KV cache scales of strategy token, expected tensor or attn_head");
}

TEST_CASE("check_calibration: layers are named, in order, and not all ignored") {
  CHECK(message_after([](Calibration& c) { c.layers.clear(); }) ==
        "the calibration has no scale: no layer, or all are ignored");
  CHECK(message_after([](Calibration& c) {
          for (AttentionCalibration& layer : c.layers) layer.ignored = true;
        }) == "the calibration has no scale: no layer, or all are ignored");
  CHECK(message_after([](Calibration& c) { c.layers[1].module = c.layers[0].module; }) ==
        "model.layers.0.self_attn: layer 1 has no module name of its own");
  CHECK(message_after([](Calibration& c) { c.layers[1].layer = 0; }) ==
        "model.layers.1.self_attn: layer 0 comes after layer 0");
}

TEST_CASE("check_target: no output in the source, nor around it") {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "models");
  fs::copy(export_source("single"), scratch / "models" / "m");
  fs::create_directory_symlink(scratch / "models" / "m", scratch / "link");
  const ModelDir model(scratch / "models" / "m"), linked(scratch / "link");
  const auto message = [&](const ModelDir& from, const fs::path& target) {
    return message_of([&] { check_target(from, target); });
  };
  CHECK(message(model, scratch / "models" / "m-kv") == "no error");
  CHECK(message(model, scratch / "out" / "deep") == "no error");
  for (const fs::path& inside :
       {fs::path("models/m"), fs::path("models/m/"), fs::path("models/m/out"),
        fs::path("models/x/../m/out"), fs::path("link/out")}) {
    INFO(inside);
    CHECK(contains(message(model, scratch / inside), "lies in the source folder"));
    CHECK(contains(message(linked, scratch / inside), "lies in the source folder"));
  }
  for (const fs::path& around : {scratch / "models", scratch.path(), fs::path("/")}) {
    INFO(around);
    CHECK(contains(message(model, around), "holds the source folder"));
  }
}

TEST_CASE("writers: every format refuses an uncalibrated layer, and its output is the same twice") {
  const ModelDir model(export_source("single"));
  const Calibration good = calibration_of(export_case("single_tensor"));
  const ModelConfig config = read_model_config(model);
  const Recipe recipe = recipe_of(good);
  for (const std::string& format : formats_of_16_bits()) {
    if (format == "ascend") continue;  // holds scales of INT8 caches alone
    INFO(format);
    Calibration bad = good;
    bad.layers[1].k.scales[0].value = std::numeric_limits<float>::quiet_NaN();
    CHECK(
        refusal(format,
                {.model = model, .calibration = bad, .config = &config, .recipe = &recipe}) ==
        "model.layers.1.self_attn: K: head 0: scale nan, expected a scale from 1.2e-38 to 5.9e33");
    const ExportInput input{
        .model = model, .calibration = good, .config = &config, .recipe = &recipe};
    CHECK((written(format, input) == written(format, input)));
  }
}

TEST_CASE("writers: a layer past num_hidden_layers needs no scale") {
  const ScratchFolder scratch;
  fs::copy(export_source("single"), scratch / "m");
  const ModelDir model(scratch / "m");
  Calibration calibration = calibration_of(export_case("single_tensor"));
  calibration.layers.pop_back();
  calibration.num_hidden_layers = 1;
  const ModelConfig config = read_model_config(model);
  const Recipe recipe = recipe_of(calibration);
  for (const std::string& format : formats_of_16_bits())
    if (format != "ascend")
      CHECK(refusal(format, {.model = model,
                             .calibration = calibration,
                             .config = &config,
                             .recipe = &recipe}) == "no error");
}

TEST_CASE("writers: templates in their folder and a hub cache's links come along as files") {
  const ScratchFolder scratch;
  const fs::path snapshot = scratch / "models--a--b" / "snapshots" / "1";
  for (const auto& entry : fs::directory_iterator(export_source("single"))) {
    const fs::path name = entry.path().filename();
    write_file(scratch / "models--a--b" / "blobs" / name, read_text(entry.path()));
    fs::create_directories(snapshot);
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  }
  write_file(snapshot / "additional_chat_templates" / "rag.jinja", "{{ documents }}");
  const ModelDir model(scratch / "models--a--b");
  const Calibration calibration = calibration_of(export_case("single_tgi"));
  const Recipe recipe = recipe_of(calibration);
  auto files = written("tgi", {.model = model, .calibration = calibration, .recipe = &recipe});
  CHECK(files["additional_chat_templates/rag.jinja"] == "{{ documents }}");
  files.erase("additional_chat_templates/rag.jinja");
  CHECK((files == contents_of(kExportFixtures / "expected" / "single_tgi")));
}
