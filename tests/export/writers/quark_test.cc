#include "export/export_case.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

TEST_CASE("quark: the folder is what the real packages make, byte for byte") {
  check_cases("quark", {"single_quark_ignored", "sharded_quark_head"});
}

TEST_CASE("quark: every attention module has the names that engines load") {
  struct Names {
    const char *k, *v;
  };
  const Names own{".k_proj.output_scale", ".v_proj.output_scale"}, plain{".k_scale", ".v_scale"};
  // vLLM stops at Quark's own names of the last two (tests/fixtures/engines).
  const std::map<std::string, Names> rows{{"phi3", own},
                                          {"gpt_neox", own},
                                          {"falcon_7b", own},
                                          {"nemotron_h", plain},
                                          {"cohere", plain}};
  for (const auto& [name, names] : rows) {
    INFO(name);
    const ModelDir model(test::tests_folder() / "fixtures" / "models" / name);
    const Calibration calibration = calibration_of_attention(model);
    const Recipe recipe = recipe_of(calibration);
    const ScratchFolder scratch;
    const auto writer = kWriters.at("quark").make();
    const ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
    writer->check(input);
    writer->write(input, scratch.path());
    const ModelDir output(scratch.path());
    for (const AttentionCalibration& layer : calibration.layers) {
      const TensorView& k = output.tensor(layer.module + names.k);
      CHECK(k.shape == Shape{});
      CHECK(k.as<float>()[0] == layer.k.scales[0].value);
      CHECK(output.tensor(layer.module + names.v).as<float>()[0] == layer.v.scales[0].value);
    }
  }
}

TEST_CASE("quark: refuses what it cannot hold") {
  const ModelDir model(export_source("single"));
  Calibration calibration = calibration_of(export_case("single_quark_ignored"));
  const Recipe recipe = recipe_of(calibration);
  ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
  CHECK(refusal("quark", input) == "no error");
  input.scale_in_model_dtype = true;
  CHECK(refusal("quark", input) ==
        "Quark's scales are float32; scale dtype 'model' is not for them");
  input.scale_in_model_dtype = false;
  calibration.kv_format = fp8::Format::kE5m2;
  CHECK(refusal("quark", input) ==
        "Quark's form holds scales of E4M3FN, which engines double where codes are E4M3FNUZ; the "
        "calibration has another format (convert takes --fp8-dialect fn)");
  calibration.kv_format = fp8::Format::kE4m3Fn;
  calibration.layers[0].k.scales[0] = {1e-9f};
  CHECK(contains(refusal("quark", input), ".k_proj.output_scale: scale 1e-09 becomes 0 in F16"));
}

TEST_CASE("quark: the user is told what the engine does not do by itself") {
  const ModelDir model(export_source("single"));
  Calibration calibration = calibration_of(export_case("sharded_quark_head"));
  const Recipe recipe = recipe_of(calibration);
  const auto writer = kWriters.at("quark").make();
  const auto notes = [&] {
    return writer->notes({.model = model, .calibration = calibration, .recipe = &recipe});
  };
  REQUIRE(notes().size() == 2);
  CHECK(contains(notes()[0], "--kv-cache-dtype fp8"));
  CHECK(contains(notes()[1], "the largest of all heads"));
  calibration.layers[1].ignored = true;
  REQUIRE(notes().size() == 3);
  CHECK(contains(notes()[2], "--kv-cache-dtype-skip-layers 1"));
  calibration.is_latent = true;
  REQUIRE(notes().size() == 4);
  CHECK(contains(notes()[3], "latent"));
}

TEST_CASE("quark: queries and softmax weights have their scales, below the names vLLM maps") {
  const ModelDir model(test::tests_folder() / "fixtures" / "models" / "phi3");
  Calibration calibration = calibration_of_attention(model);
  for (AttentionCalibration& layer : calibration.layers) {
    layer.q = layer.k;
    layer.q->scales = {{0.25f}};
  }
  const Recipe recipe = recipe_of(calibration);
  const ScratchFolder scratch;
  const auto writer = kWriters.at("quark").make();
  const ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
  writer->check(input);
  writer->write(input, scratch.path());
  const ModelDir output(scratch.path());
  for (const AttentionCalibration& layer : calibration.layers) {
    CHECK(output.tensor(layer.module + ".q_proj.output_scale").as<float>()[0] == 0.25f);
    CHECK(output.tensor(layer.module + ".prob_output_scale").as<float>()[0] == 1.0f / 448.0f);
  }
  for (const std::string& note : writer->notes(input)) CHECK_FALSE(contains(note, "queries"));
}
