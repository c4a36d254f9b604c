#include "export/export_case.h"
#include "quant/scale.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

struct Parts {
  explicit Parts(const std::string& name)
      : model(export_source(export_case(name).at("source").get<std::string>())),
        calibration(calibration_of(export_case(name))),
        recipe(recipe_of(calibration)) {}
  ExportInput input(int64_t tp_size = 1) const {
    return {.model = model, .calibration = calibration, .recipe = &recipe, .tp_size = tp_size};
  }

  ModelDir model;
  Calibration calibration;
  Recipe recipe;
};

}  // namespace

TEST_CASE("scales-json: the file is what Python's json makes, and the only one") {
  for (const char* name : {"scales_json", "scales_json_tp2"}) {
    const int64_t tp_size = optional_int(export_case(name), "tp_size").value_or(1);
    INFO("case " << name);
    CHECK((written("scales-json", Parts(name).input(tp_size)) ==
           contents_of(kExportFixtures / "expected" / name)));
  }
}

TEST_CASE("scales-json: every scale reads back as the same float32 and double") {
  Parts parts("scales_json");
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    state = state * 1664525u + 1013904223u;
    // Floats of all exponents; the largest of K and V is written.
    const float value = __builtin_bit_cast(float, (state >> 1) % 0x7f800000u);
    if (!is_usable({value})) continue;
    parts.calibration.layers[0].k.scales[0] = parts.calibration.layers[0].v.scales[0] = {value};
    const auto files = written("scales-json", parts.input());
    const Json json = parse_json(files.at("kv_cache_scales.json"));
    const Json& read = json.at("kv_cache").at("scaling_factor").at("0").at("0");
    CHECK(read.is_number_float());
    CHECK(read.get<double>() == static_cast<double>(value));
    CHECK(read.get<float>() == value);
    if (round > 200) break;
  }
}

TEST_CASE("scales-json: an integral scale is written as a float") {
  Parts parts("scales_json");
  parts.calibration.layers[0].k.scales[0] = {2.0f};
  const auto files = written("scales-json", parts.input());
  CHECK(contains(files.at("kv_cache_scales.json"), "\"0\": 2.0,"));
}

TEST_CASE("scales-json: a layer without a scale is an error, not 1.0") {
  Parts parts("scales_json");
  parts.calibration.layers[1].ignored = true;
  CHECK(refusal("scales-json", parts.input()) ==
        "model.layers.1.self_attn is ignored and has no scale; kv_cache_scales.json must have one "
        "for every layer");
  parts = Parts("scales_json");
  parts.calibration.layers[1].layer = 5;
  CHECK(refusal("scales-json", parts.input()) ==
        "layer 1 has no scale; kv_cache_scales.json must have one for each of 2 layers");
}

TEST_CASE("scales-json: refuses what the schema has no place for") {
  Parts parts("scales_json");
  CHECK(refusal("scales-json", parts.input(0)) == "tensor parallel size 0, expected 1 to 1024");
  CHECK(refusal("scales-json", parts.input(1025)) ==
        "tensor parallel size 1025, expected 1 to 1024");
  ExportInput input = parts.input();
  input.scale_in_model_dtype = true;
  CHECK(refusal("scales-json", input) ==
        "kv_cache_scales.json holds no dtype; scale dtype 'model' is not for it");
  parts.calibration.kv_format = fp8::Format::kE4m3Fnuz;
  CHECK(refusal("scales-json", parts.input()) ==
        "kv_cache_scales.json holds scales of float8_e4m3fn or float8_e5m2, the calibration has "
        "those of float8_e4m3fnuz");
}

TEST_CASE("scales-json: the user is told that heads share a scale") {
  const auto writer = kWriters.at("scales-json").make();
  CHECK(writer->notes(Parts("scales_json").input()).empty());
  CHECK(writer->notes(Parts("scales_json_tp2").input()).size() == 1);
}

TEST_CASE("scales-json: scales of E5M2 say so, and that engines do not read them") {
  Parts parts("scales_json");
  parts.calibration.kv_format = fp8::Format::kE5m2;
  const auto files = written("scales-json", parts.input());
  CHECK(contains(files.at("kv_cache_scales.json"), "\"dtype\": \"float8_e5m2\""));
  const auto notes = kWriters.at("scales-json").make()->notes(parts.input());
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], "no engine"));
}

TEST_CASE("scales-json: ranks that the heads cannot be divided over are refused") {
  CHECK(contains(refusal("scales-json", Parts("scales_json_tp2").input(3)),
                 "2 heads cannot be divided over 3 ranks"));
  CHECK(refusal("scales-json", Parts("scales_json_tp2").input(4)) == "no error");
}
