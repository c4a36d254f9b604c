#include "engines/verify.h"

#include "engines/engine_rules.h"
#include "stored/weights.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

namespace kvcal {

namespace {

fs::path model_fixture(const std::string& family) {
  return test::tests_folder() / "fixtures/models" / family;
}

ModelConfig config_of(const std::string& family) {
  return read_model_config(ModelDir(model_fixture(family)));
}

/// A file of scales for every layer of a family.
void write_scales(const fs::path& path, const std::string& family) {
  const ModelConfig config = config_of(family);
  Json layers = Json::object();
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    layers[std::to_string(layer)] = 0.125;
  const Json cache = {{"dtype", "float8_e4m3fn"}, {"scaling_factor", {{"0", layers}}}};
  test::write_file(path, dump_json(Json{{"model_type", family}, {"kv_cache", cache}}));
}

ServedEngine only(const std::vector<ServedEngine>& engines) {
  REQUIRE(engines.size() == 1);
  return engines.front();
}

}  // namespace

TEST_CASE("served_engines: a checkpoint without scales is loaded by none, with the reason") {
  const auto engines = served_engines({{.checkpoint = model_fixture("llama")}}, config_of("llama"),
                                      engine_rules().names(), 1);
  CHECK(engines.size() == engine_rules().names().size());
  for (const ServedEngine& engine : engines) {
    CHECK(engine.outcome != LoadOutcome::kLoaded);
    CHECK_FALSE(engine.note.empty());
  }
}

TEST_CASE("served_engines: the first folder that an engine uses, with its arguments") {
  const test::ScratchFolder folder;
  const fs::path scales = folder / "kv_cache_scales.json";
  write_scales(scales, "qwen3");
  const std::vector<ServedFolder> folders{{.checkpoint = model_fixture("qwen3")},
                                          {.checkpoint = model_fixture("qwen3"), .scales = scales}};
  const ServedEngine engine =
      only(served_engines(folders, config_of("qwen3"), {"sglang@0.5.23"}, 1));
  CHECK(engine.name == "sglang@0.5.23");
  CHECK(engine.title == choose_engine("sglang@0.5.23").title());
  CHECK(engine.outcome == LoadOutcome::kLoaded);
  CHECK(engine.note ==
        "python3 -m sglang.launch_server --model-path " + model_fixture("qwen3").string() +
            " --kv-cache-dtype fp8_e4m3 --quantization-param-path " + scales.string());
}

TEST_CASE("served_engines: commands call the checkpoint as they are told to") {
  const test::ScratchFolder folder;
  fs::copy(model_fixture("qwen3"), folder.path(), fs::copy_options::recursive);
  write_scales(folder / "kv_cache_scales.json", "qwen3");
  const ServedEngine engine = only(served_engines({{.checkpoint = folder.path(), .shown = "."}},
                                                  config_of("qwen3"), {"sglang"}, 1));
  CHECK(
      engine.note.ends_with("--model-path . --kv-cache-dtype fp8_e4m3 --quantization-param-path "
                            "kv_cache_scales.json"));
}

TEST_CASE("served_engines: an engine that reads a file of its own alone, with its arguments") {
  const test::ScratchFolder folder;
  const ModelConfig config = config_of("llama");
  const int64_t heads = config.num_key_value_heads;
  Json scales = Json::array();
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    scales.push_back(std::vector<double>(static_cast<size_t>(2 * heads), 0.25));
  const fs::path file = folder / "kv_cache_calib.json";
  test::write_file(file, dump_json({{"version", "1.0"},
                                    {"architectures", "LlamaForCausalLM"},
                                    {"quant_type", "per_head"},
                                    {"qmin", -448.0},
                                    {"qmax", 448.0},
                                    {"num_layers", config.num_hidden_layers},
                                    {"num_head", heads},
                                    {"scales_shape", {config.num_hidden_layers, 2 * heads}},
                                    {"scales", scales}}));
  const fs::path model = model_fixture("llama");
  const ServedEngine engine =
      only(served_engines({{.checkpoint = model, .scales = file}}, config, {"lightllm"}, 1));
  CHECK(engine.outcome == LoadOutcome::kNotKnown);
  CHECK(engine.is_used);
  CHECK(engine.note ==
        "not run with such a model; by its rules: python -m "
        "lightllm.server.api_server --model_dir " +
            model.string() + (heads > 1 ? " --llm_kv_type fp8kv_sph" : " --llm_kv_type fp8kv_spt") +
            " --kv_quant_calibration_config_path " + file.string());
}

TEST_CASE("served_engines: an engine that was not run with such a model is not known") {
  const auto engine = only(
      served_engines({{.checkpoint = model_fixture("llama")}}, config_of("llama"), {"trtllm"}, 1));
  CHECK(engine.outcome == LoadOutcome::kNotKnown);
  CHECK(engine.note.starts_with("not run with such a model; by its rules: "));
}

}  // namespace kvcal
