#include <algorithm>

#include "export/export_case.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// Everything a writer needs, built from a case, to be changed by a test.
struct Parts {
  explicit Parts(const std::string& name)
      : model(export_source(export_case(name).at("source").get<std::string>())),
        calibration(calibration_of(export_case(name))),
        recipe(recipe_of(calibration)) {}
  ExportInput input() const {
    return {.model = model, .calibration = calibration, .recipe = &recipe};
  }
  std::string refusal() const { return test::refusal("compressed-tensors", input()); }

  ModelDir model;
  Calibration calibration;
  Recipe recipe;
};

/// A copy of the single-file source whose config.json gets one more key.
class ChangedConfig {
 public:
  ChangedConfig(const std::string& key, const Json& value) {
    fs::copy(export_source("single"), scratch_ / "model");
    Json config = parse_json(read_text(path() / "config.json"));
    config[key] = value;
    write_file(path() / "config.json", dump_json(config));
  }
  fs::path path() const { return scratch_ / "model"; }

 private:
  ScratchFolder scratch_;
};

}  // namespace

TEST_CASE("compressed-tensors: the folder is what the real packages make, byte for byte") {
  for (const char* name : {"single_tensor", "single_head", "single_model_dtype", "single_ignored",
                           "sharded_tensor", "sharded_head_model_dtype"}) {
    const Parts parts(name);
    ExportInput input = parts.input();
    input.scale_in_model_dtype =
        optional_bool(export_case(name), "scale_in_model_dtype").value_or(false);
    auto files = written("compressed-tensors", input);
    CHECK(files["recipe.yaml"] == to_yaml(parts.recipe));
    files.erase("recipe.yaml");
    check_files(files, name);
  }
}

TEST_CASE("compressed-tensors: the source is not touched") {
  const auto before = contents_of(export_source("sharded"));
  const Parts parts("sharded_tensor");
  written("compressed-tensors", parts.input());
  CHECK((contents_of(export_source("sharded")) == before));
}

TEST_CASE("compressed-tensors: what is written opens as a model with every weight and scale") {
  for (const char* name : {"single_head", "sharded_tensor"}) {
    const Parts parts(name);
    const ScratchFolder scratch;
    kWriters.at("compressed-tensors").make()->write(parts.input(), scratch.path());
    const ModelDir output(scratch.path());
    CHECK(output.tensor_names().size() == parts.model.tensor_names().size() + 4);
    for (const std::string& tensor : parts.model.tensor_names()) {
      const auto before = parts.model.tensor(tensor).bytes, after = output.tensor(tensor).bytes;
      CHECK(std::equal(before.begin(), before.end(), after.begin(), after.end()));
    }
    for (const AttentionCalibration& layer : parts.calibration.layers) {
      const auto k = output.tensor(layer.module + ".k_scale").as<float>();
      REQUIRE(k.size() == layer.k.scales.size());
      for (size_t i = 0; i < k.size(); ++i) CHECK(k[i] == layer.k.scales[i].value);
    }
    // Its own output is quantized, and is no source again.
    const ExportInput again{
        .model = output, .calibration = parts.calibration, .recipe = &parts.recipe};
    CHECK(contains(refusal("compressed-tensors", again),
                   "the checkpoint is quantized already: quantization_config with quant_method "
                   "'compressed-tensors'"));
  }
}

TEST_CASE("compressed-tensors: a quantized checkpoint is refused, naming its method") {
  const Parts parts("single_tensor");
  const std::vector<std::pair<Json, std::string>> cases{
      {Json{{"quant_method", "gptq"}, {"bits", 4}}, "'gptq'"},
      {Json::object(), "missing"},
  };
  for (const auto& [config, method] : cases) {
    const ChangedConfig source("quantization_config", config);
    const ModelDir model(source.path());
    CHECK(refusal("compressed-tensors",
                  {.model = model, .calibration = parts.calibration, .recipe = &parts.recipe}) ==
          (source.path() / "config.json").string() +
              ": the checkpoint is quantized already: quantization_config with quant_method " +
              method + ", expected a 16-bit checkpoint");
  }
  const ChangedConfig nested("text_config",
                             Json{{"quantization_config", {{"quant_method", "fp8"}}}});
  const ModelDir model(nested.path());
  CHECK(contains(
      refusal("tgi", {.model = model, .calibration = parts.calibration, .recipe = &parts.recipe}),
      "with quant_method 'fp8'"));
  const ChangedConfig null("quantization_config", nullptr);
  const ModelDir plain(null.path());
  CHECK(refusal("compressed-tensors",
                {.model = plain, .calibration = parts.calibration, .recipe = &parts.recipe}) ==
        "no error");
}

TEST_CASE("compressed-tensors: schemes that engines do not load are refused") {
  const auto refused = [](auto change) {
    Parts parts("single_tensor");
    change(parts.calibration);
    return parts.refusal();
  };
  const std::string wanted = "; engines load float or int, 8 bits, symmetric, static";
  CHECK(contains(refused([](Calibration& c) { c.kv_args.type = QuantType::kInt; }), wanted));
  CHECK(contains(refused([](Calibration& c) { c.kv_args.num_bits = 4; }), wanted));
  CHECK(contains(refused([](Calibration& c) { c.kv_args.symmetric = false; }), wanted));
  CHECK(contains(refused([](Calibration& c) { c.kv_args.dynamic = true; }), wanted));
  CHECK(refused([](Calibration& c) { c.kv_args.strategy = Strategy::kChannel; }) ==
        "KV cache scales of strategy channel, expected tensor or attn_head");
  CHECK(contains(refused([](Calibration& c) { c.kv_format = fp8::Format::kE5m2; }), "E4M3"));
}

TEST_CASE("compressed-tensors: model and calibration must name the same attention modules") {
  Parts parts("single_tensor");
  const std::string where = parts.model.path().string();
  parts.calibration.layers.pop_back();
  CHECK(parts.refusal() == "model.layers.1.self_attn is in the checkpoint and was not calibrated");
  parts = Parts("single_tensor");
  parts.calibration.layers.push_back(parts.calibration.layers.back());
  parts.calibration.layers.back().layer = 2;
  parts.calibration.layers.back().module = "model.layers.2.self_attn";
  CHECK(parts.refusal() ==
        where + ": has no tensor of the calibrated module model.layers.2.self_attn");
}

TEST_CASE("compressed-tensors: a scale must be normal in the dtype it is rounded to") {
  const auto refused = [](const std::string& name, float scale) {
    Parts parts(name);
    parts.calibration.layers[1].v.scales[0].value = scale;
    ExportInput input = parts.input();
    input.scale_in_model_dtype = true;
    return refusal("compressed-tensors", input);
  };
  CHECK(refused("single_tensor", 0x1p-14f) == "no error");
  CHECK(refused("single_tensor", 0x1.ff8p-15f) ==
        "model.layers.1.self_attn.v_scale: scale 6.09756e-05 is out of the normal range of F16; "
        "write "
        "scales as float32 (--scale-dtype float32)");
  CHECK(contains(refused("single_tensor", 1e-9f), "out of the normal range of F16"));
  CHECK(contains(refused("single_tensor", 1e5f), "out of the normal range of F16"));
  CHECK(refused("sharded_tensor", 1e-9f) == "no error");
  CHECK(contains(refused("sharded_tensor", 1e-40f), "expected a scale from 1.2e-38"));
}

TEST_CASE("compressed-tensors: scales that are there already are not written over") {
  const Parts parts("single_tensor");
  const ScratchFolder scratch;
  fs::copy(export_source("single"), scratch / "m");
  const Tensor scale =
      make_f32_tensor("model.layers.0.self_attn.v_scale", {1}, std::vector<float>{1.0f});
  std::vector<TensorSource> sources{source_of(scale)};
  for (const TensorView& tensor : parts.model.shards()[0].tensors())
    sources.push_back(source_of(parts.model.shards()[0], tensor));
  write_safetensors(scratch / "m" / "model.safetensors", sources, {});
  const ModelDir model(scratch / "m");
  for (const char* format : {"compressed-tensors", "tgi"})
    CHECK(refusal(format,
                  {.model = model, .calibration = parts.calibration, .recipe = &parts.recipe}) ==
          (scratch / "m").string() + ": has a tensor model.layers.0.self_attn.v_scale already");
}

TEST_CASE("compressed-tensors: the user is told of layers without a scale") {
  const auto writer = kWriters.at("compressed-tensors").make();
  CHECK(writer->notes(Parts("single_tensor").input()).empty());
  const auto notes = writer->notes(Parts("single_ignored").input());
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], "--kv-cache-dtype-skip-layers 1"));
}
