#include "export/export_case.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

TEST_CASE("tgi: the folder is what the real packages make, byte for byte") {
  check_cases("tgi", {"single_tgi", "single_tgi_ignored", "sharded_tgi_head", "single_tgi_fnuz"});
}

TEST_CASE("tgi: refuses what it cannot hold") {
  const ModelDir model(export_source("single"));
  Calibration calibration = calibration_of(export_case("single_tgi"));
  const Recipe recipe = recipe_of(calibration);
  ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
  input.scale_in_model_dtype = true;
  CHECK(refusal("tgi", input) == "TGI's kv_scale is float32; scale dtype 'model' is not for it");
  input.scale_in_model_dtype = false;
  calibration.kv_format = fp8::Format::kE5m2;
  CHECK(refusal("tgi", input) ==
        "TGI reads scales of E4M3FN and E4M3FNUZ, the calibration is of E5M2");
  calibration.kv_format = fp8::Format::kE4m3Fn;
  // Both of K and V, or the largest would still be fine.
  calibration.layers[0].k.scales[0] = calibration.layers[0].v.scales[0] = {1e-9f};
  CHECK(refusal("tgi", input) ==
        "model.layers.0.self_attn.kv_scale: scale 1e-09 becomes 0 in the 16 bits TGI casts it to");
  calibration.layers[0].v.scales[0] = {1e-3f};
  CHECK(refusal("tgi", input) == "no error");
}

TEST_CASE("tgi: the user is told what one scale a layer does not keep") {
  const auto notes = [](const std::string& name) {
    const ModelDir model(export_source("single"));
    const Calibration calibration = calibration_of(export_case(name));
    const Recipe recipe = recipe_of(calibration);
    return kWriters.at("tgi").make()->notes(
        {.model = model, .calibration = calibration, .recipe = &recipe});
  };
  CHECK(notes("single_tgi").empty());
  REQUIRE(notes("sharded_tgi_head").size() == 1);
  CHECK(contains(notes("sharded_tgi_head")[0], "the largest of all heads"));
  REQUIRE(notes("single_tgi_ignored").size() == 1);
  CHECK(contains(notes("single_tgi_ignored")[0], "TGI uses 1.0 there"));
}
