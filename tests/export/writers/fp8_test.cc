#include "export/export_case.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

const fs::path kSource = test::tests_folder() / "fixtures" / "models" / "deepseek_v3_fp8";

/// Scales for both layers of the fixture.
Calibration calibration_of_source() {
  Calibration calibration;
  calibration.kv_args.type = QuantType::kFloat;
  calibration.kv_args.num_bits = 8;
  calibration.kv_args.strategy = Strategy::kTensor;
  calibration.num_hidden_layers = 2;
  calibration.is_latent = true;
  for (const int64_t layer : {0, 1}) {
    AttentionCalibration attention;
    attention.layer = layer;
    attention.module = "model.layers." + std::to_string(layer) + ".self_attn";
    attention.k.scales = {{0.5f + static_cast<float>(layer)}};
    attention.v.scales = {{0.25f}};
    calibration.layers.push_back(attention);
  }
  return calibration;
}

/// What the fixture's weights are.
SourceQuantization kept_of(const ModelDir& model) {
  return {.format = "fp8", .config = model.config().at("quantization_config")};
}

}  // namespace

TEST_CASE("fp8: scales join the FP8 weights, whose bytes and configuration stay") {
  const ModelDir model(kSource);
  const Calibration calibration = calibration_of_source();
  const Recipe recipe = recipe_of(calibration);
  const ScratchFolder scratch;
  const auto writer = kWriters.at("fp8").make();
  const SourceQuantization kept = kept_of(model);
  const ExportInput input{
      .model = model, .calibration = calibration, .recipe = &recipe, .kept = &kept};
  writer->check(input);
  writer->write(input, scratch.path());
  const ModelDir output(scratch.path());
  Json config = output.config();
  CHECK(config.at("quantization_config").at("kv_cache_scheme") == "static");
  config.at("quantization_config").erase("kv_cache_scheme");
  CHECK(sorted_keys(config) == sorted_keys(model.config()));
  CHECK(output.tensor_names().size() == model.tensor_names().size() + 4);
  for (const std::string& name : model.tensor_names()) {
    INFO(name);
    const TensorView *before = model.find(name), *after = output.find(name);
    REQUIRE(after);
    CHECK(after->dtype == before->dtype);
    CHECK(std::ranges::equal(after->bytes, before->bytes));
  }
  const TensorView& k_scale = output.tensor("model.layers.1.self_attn.k_scale");
  CHECK(k_scale.dtype == DType::kF32);
  CHECK(k_scale.as<float>()[0] == 1.5f);
  CHECK(output.tensor("model.layers.0.self_attn.v_scale").as<float>()[0] == 0.25f);
}

TEST_CASE("fp8: the user is told what the engine does not do by itself") {
  const ModelDir model(kSource);
  Calibration calibration = calibration_of_source();
  const Recipe recipe = recipe_of(calibration);
  const auto writer = kWriters.at("fp8").make();
  const auto notes = writer->notes({.model = model, .calibration = calibration, .recipe = &recipe});
  REQUIRE(notes.size() == 2);
  CHECK(contains(notes[0], "--kv-cache-dtype fp8"));
  CHECK(contains(notes[1], "latent (MLA) cache and uses 1.0"));
  calibration.is_latent = false;
  CHECK(writer->notes({.model = model, .calibration = calibration, .recipe = &recipe}).size() == 1);
}

TEST_CASE("fp8: refuses 16-bit weights and other formats of scales") {
  Calibration calibration = calibration_of_source();
  const Recipe recipe = recipe_of(calibration);
  {
    const ModelDir other(export_source("single"));
    CHECK(contains(refusal("fp8", {.model = other, .calibration = calibration, .recipe = &recipe}),
                   "for 16-bit weights use compressed-tensors"));
  }
  const ModelDir model(kSource);
  const SourceQuantization kept = kept_of(model);
  ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe, .kept = &kept};
  CHECK(refusal("fp8", input) == "no error");
  input.scale_in_model_dtype = true;
  CHECK(contains(refusal("fp8", input), "are float32"));
  input.scale_in_model_dtype = false;
  calibration.kv_format = fp8::Format::kE5m2;
  CHECK(contains(refusal("fp8", input), "E4M3FN"));
  calibration.kv_format = fp8::Format::kE4m3Fn;
  CHECK(
      contains(refusal("modelopt", input),
               "the weights of the source are quantized in another form (quant_method 'fp8'): fp8 "
               "keeps them, kvcal convert writes FP8 weights in ModelOpt's"));
  const SourceQuantization of_no_writer{.format = "awq"};
  input.kept = &of_no_writer;
  CHECK(contains(refusal("modelopt", input),
                 "(quant_method 'awq'): compressed-tensors holds the same codes"));
  CHECK(
      contains(refusal("compressed-tensors",
                       {.model = model, .calibration = calibration_of_source(), .recipe = &recipe}),
               "--format fp8 keeps FP8 weights"));
}
