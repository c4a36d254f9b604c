#include "export/export_case.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

TEST_CASE("modelopt: the folder is what the real packages make, byte for byte") {
  check_cases("modelopt", {"single_modelopt", "sharded_modelopt_head_ignored"});
}

TEST_CASE("modelopt: names are the same beside a fused QKV, in hybrids and with a latent cache") {
  for (const char* name : {"phi3", "nemotron_h", "deepseek_v3"}) {
    INFO(name);
    const ModelDir model(test::tests_folder() / "fixtures" / "models" / name);
    const Calibration calibration = calibration_of_attention(model);
    const Recipe recipe = recipe_of(calibration);
    const ScratchFolder scratch;
    const auto writer = kWriters.at("modelopt").make();
    const ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
    writer->check(input);
    writer->write(input, scratch.path());
    const ModelDir output(scratch.path());
    const size_t layers = calibration.layers.size();
    CHECK(output.tensor_names().size() == model.tensor_names().size() + 2 * layers);
    for (const AttentionCalibration& layer : calibration.layers) {
      const TensorView& k = output.tensor(layer.module + ".k_proj.k_scale");
      const TensorView& v = output.tensor(layer.module + ".v_proj.v_scale");
      CHECK(k.dtype == DType::kF32);
      CHECK(k.shape == Shape{});
      CHECK(k.as<float>()[0] == layer.k.scales[0].value);
      CHECK(v.as<float>()[0] == layer.v.scales[0].value);
    }
  }
}

TEST_CASE("modelopt: refuses what it cannot hold") {
  const ModelDir model(export_source("single"));
  Calibration calibration = calibration_of(export_case("single_modelopt"));
  const Recipe recipe = recipe_of(calibration);
  ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
  CHECK(refusal("modelopt", input) == "no error");
  input.scale_in_model_dtype = true;
  CHECK(refusal("modelopt", input) ==
        "ModelOpt's scales are float32; scale dtype 'model' is not for them");
  input.scale_in_model_dtype = false;
  calibration.kv_format = fp8::Format::kE4m3Fnuz;
  CHECK(contains(refusal("modelopt", input), "holds scales of E4M3FN"));
  calibration.kv_format = fp8::Format::kE4m3Fn;
  // Half of F16's smallest number rounds to 0.
  calibration.layers[1].v.scales[0] = {0x1p-25f};
  CHECK(refusal("modelopt", input) ==
        "model.layers.1.self_attn.v_proj.v_scale: scale 2.98023e-08 becomes 0 in F16, in which "
        "vLLM holds it");
  calibration.layers[1].v.scales[0] = {0x1p-24f};
  CHECK(refusal("modelopt", input) == "no error");
  QuantScheme weights;
  weights.weights = QuantArgs{};
  calibration.plan.groups = {weights};
  calibration.plan.linears = {{.module = "model.layers.0.mlp.up_proj"}};
  CHECK(contains(refusal("modelopt", input),
                 "ModelOpt has no word for a weight of strategy tensor with 16-bit inputs"));
}

TEST_CASE("modelopt: refuses a checkpoint that has scales by any name, or is quantized") {
  const Calibration calibration = calibration_of(export_case("single_modelopt"));
  const Recipe recipe = recipe_of(calibration);
  for (const char* scaled : {"single_modelopt", "single_tgi", "single_quark_ignored"}) {
    INFO(scaled);
    const ScratchFolder scratch;
    fs::copy(kExportFixtures / "expected" / scaled, scratch / "m");
    const ModelDir model(scratch / "m");
    const ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
    const bool is_tgi = std::string(scaled) == "single_tgi";
    CHECK(contains(refusal("modelopt", input),
                   is_tgi ? "has a tensor model.layers.0.self_attn.kv_scale already"
                          : "the checkpoint is quantized already"));
  }
}

TEST_CASE("modelopt: refuses attention modules whose scales engines drop") {
  const ModelDir model(test::tests_folder() / "fixtures" / "models" / "gpt_neox");
  const Calibration calibration = calibration_of_attention(model);
  const Recipe recipe = recipe_of(calibration);
  CHECK(
      contains(refusal("modelopt", {.model = model, .calibration = calibration, .recipe = &recipe}),
               ".attention: vLLM and SGLang have no place for .k_proj.k_scale of modules"));
}

TEST_CASE("modelopt: the user is told what one scale a layer does not keep") {
  const auto notes = [](const std::string& name, bool is_latent = false) {
    const ModelDir model(export_source("single"));
    Calibration calibration = calibration_of(export_case(name));
    calibration.is_latent = is_latent;
    const Recipe recipe = recipe_of(calibration);
    return kWriters.at("modelopt")
        .make()
        ->notes({.model = model, .calibration = calibration, .recipe = &recipe});
  };
  CHECK(notes("single_modelopt").empty());
  const auto both = notes("sharded_modelopt_head_ignored");
  REQUIRE(both.size() == 2);
  CHECK(contains(both[0], "the largest of all heads"));
  CHECK(contains(both[1], "--kv-cache-dtype-skip-layers 0"));
  REQUIRE(notes("single_modelopt", true).size() == 1);
  CHECK(contains(notes("single_modelopt", true)[0], "drops the scales of a latent (MLA) cache"));
}
