#include "export/export_case.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"
#include "stored/read_model_config.h"
#include "stored/scales_file.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

struct Parts {
  explicit Parts(const std::string& name)
      : model(export_source(export_case(name).at("source").get<std::string>())),
        config(read_model_config(model)),
        calibration(calibration_of(export_case(name))),
        recipe(recipe_of(calibration)) {}
  ExportInput input() const {
    return {.model = model, .calibration = calibration, .config = &config, .recipe = &recipe};
  }
  std::string note(const char* format) const {
    const auto notes = kWriters.at(format).make()->notes(input());
    return notes.empty() ? "" : notes.front();
  }

  ModelDir model;
  ModelConfig config;
  Calibration calibration;
  Recipe recipe;
};

std::string file_of(const std::string& format) {
  return std::string(kWriters.at(format).file);
}

constexpr const char* kFormats[] = {"lightllm", "onnxruntime-genai"};

}  // namespace

TEST_CASE("scales files: the file is what Python's json makes, and the only one") {
  int num_written = 0;
  for (const Json& test_case :
       parse_json(read_text(tests_folder() / "fixtures" / "scales_files.json"))) {
    const auto name = optional_string(test_case, "written");
    if (!name) continue;
    const auto format = test_case.at("format").get<std::string>();
    INFO(format << ": " << *name);
    const auto files = written(format, Parts(*name).input());
    CHECK(files.size() == 1);
    CHECK(files.at(file_of(format)) == dump_json(test_case.at("document"), 4));
    ++num_written;
  }
  CHECK(num_written == 4);
}

TEST_CASE("scales files: the user is told how the engine is given the file") {
  CHECK(contains(Parts("scales_json").note("lightllm"), "--llm_kv_type fp8kv_spt"));
  CHECK(contains(Parts("scales_json_tp2").note("lightllm"), "--llm_kv_type fp8kv_sph"));
  CHECK(contains(Parts("scales_json").note("onnxruntime-genai"), "=fp8_per_tensor"));
  CHECK(contains(Parts("scales_json_tp2").note("onnxruntime-genai"), "=fp8_per_channel"));
}

TEST_CASE("scales files: a layer without a scale is an error, not 1.0") {
  for (const char* format : kFormats) {
    Parts parts("scales_json");
    parts.calibration.layers[1].ignored = true;
    CHECK(refusal(format, parts.input()) ==
          "model.layers.1.self_attn is ignored and has no scale; " + file_of(format) +
              " must have one for every layer");
  }
  Parts parts("scales_json");
  parts.calibration.layers[1].layer = 5;
  CHECK(refusal("lightllm", parts.input()) ==
        "layer 1 has no scale; kv_cache_calib.json must have one for each of 2 layers");
}

TEST_CASE("scales files: refuse what the files have no place for") {
  for (const char* format : kFormats) {
    for (const fp8::Format cache : {fp8::Format::kE5m2, fp8::Format::kE4m3Fnuz}) {
      Parts parts("scales_json");
      parts.calibration.kv_format = cache;
      CHECK(refusal(format, parts.input()) == file_of(format) +
                                                  " holds scales of float8_e4m3fn, the calibration "
                                                  "has those of " +
                                                  std::string(fp8::name_of(cache)));
    }
    Parts parts("scales_json");
    parts.calibration.is_latent = true;
    CHECK(refusal(format, parts.input()) ==
          file_of(format) + " holds no scales of a latent (MLA) cache");
  }
}

TEST_CASE("scales files: INT8 scales are ONNX Runtime GenAI's, by channel too, and no other's") {
  Parts parts("scales_json");
  const LayerCache& cache = parts.config.cache(0);
  parts.calibration.kv_format = KvFormat::int8();
  parts.calibration.kv_args.type = QuantType::kInt;
  parts.calibration.kv_args.strategy = Strategy::kChannel;
  for (AttentionCalibration& layer : parts.calibration.layers)
    for (KvTensorCalibration* side : {&layer.k, &layer.v}) {
      side->scales.clear();
      for (int64_t i = 0; i < cache.heads * cache.k_dim; ++i)
        side->scales.push_back({0.25f + static_cast<float>(i) / 64.0f});
    }
  for (const char* format : {"lightllm", "scales-json", "tgi", "quark"})
    CHECK(refusal(format, parts.input()) ==
          "holds no scales of INT8 caches; formats that do are ascend, modelopt, "
          "onnxruntime-genai");
  CHECK(refusal("compressed-tensors", parts.input()) ==
        "holds no scales of channels; formats that do are ascend, modelopt, onnxruntime-genai");
  CHECK(contains(parts.note("onnxruntime-genai"), "=int8_per_channel"));
  const ScratchFolder scratch;
  const auto files = written("onnxruntime-genai", parts.input());
  write_file(scratch / "kv_scales.json", files.at("kv_scales.json"));
  const ScalesBeside read = read_onnxruntime_genai_file(scratch / "kv_scales.json", parts.config);
  CHECK(read.format.is_int8());
  REQUIRE(read.layers.size() == parts.calibration.layers.size());
  REQUIRE(read.layers[0].k.size() == parts.calibration.layers[0].k.scales.size());
  for (size_t i = 0; i < read.layers[0].k.size(); ++i)
    CHECK(read.layers[0].k[i].value == parts.calibration.layers[0].k.scales[i].value);
  CHECK(parse_json(files.at("kv_scales.json")).at("qmax") == 128.0);
}

TEST_CASE("scales files: vLLM-Ascend's checkpoint has a scale and an offset a channel") {
  Parts parts("scales_json");
  parts.calibration.kv_args.type = QuantType::kInt;
  CHECK(refusal("ascend", parts.input()) ==
        "holds no scales of FP8 caches; formats that do are compressed-tensors, fp8, lightllm, "
        "modelopt, onnxruntime-genai, quark, scales-json, tgi");
  parts.calibration.kv_format = KvFormat::int8();
  const auto files = written("ascend", parts.input());
  const Json description = parse_json(files.at("quant_model_description.json"));
  const std::string name = "model.layers.0.self_attn.k_proj.kv_cache_scale";
  CHECK(description.at("kv_cache_type") == "C8");
  CHECK(description.at(name) == "C8");
  CHECK(description.at("model.layers.0.self_attn.k_proj.kv_cache_offset") == "C8");
  CHECK(description.at("model.layers.0.self_attn.k_proj.weight") == "FLOAT");
  const ScratchFolder scratch;
  for (const auto& [file, content] : files) write_file(scratch / file, content);
  const ModelDir made(scratch.path());
  const LayerCache& cache = parts.config.cache(0);
  CHECK(made.tensor(name).shape == Shape{cache.heads * cache.k_dim});
  const auto scales = read_checkpoint_scales(made, parts.config);
  REQUIRE(scales);
  // All channels of a layer have its scale.
  REQUIRE(scales->at(1).v.size() == 1);
  CHECK(scales->at(1).v[0].value == parts.calibration.layers[1].v.scales[0].value);
  CHECK(read_kv_scheme(read_quantization_config(made)).cache == KvScheme::Cache::kInt8);
}

TEST_CASE("scales files: ModelOpt's INT8 is a word, without an algorithm for weights") {
  Parts parts("scales_json_tp2");
  parts.calibration.kv_format = KvFormat::int8();
  parts.calibration.kv_args.type = QuantType::kInt;
  const auto files = written("modelopt", parts.input());
  const Json quantization = parse_json(files.at("hf_quant_config.json")).at("quantization");
  CHECK(quantization.at("kv_cache_quant_algo") == "INT8");
  CHECK(quantization.at("quant_algo").is_null());
  CHECK(quantization.at("exclude_modules").empty());
  const Json config = parse_json(files.at("config.json")).at("quantization_config");
  CHECK(config.at("kv_cache_scheme").at("type") == "int");
}

TEST_CASE("scales files: layers must be alike where a file has one shape for all") {
  Parts parts("scales_json_tp2");
  parts.config.layers[1].cache.heads = 1;
  CHECK(refusal("lightllm", parts.input()) ==
        "model.layers.1.self_attn: has 1 KV head, an earlier layer 2; kv_cache_calib.json holds "
        "one number for all");
  parts = Parts("scales_json_tp2");
  parts.config.layers[1].cache.v_dim = 4;
  CHECK(
      refusal("onnxruntime-genai", parts.input()) ==
      "model.layers.1.self_attn: has 2 KV heads of 2 (K) and 4 (V) channels; kv_scales.json holds "
      "scales of channels where all have 2 of 2");
  parts = Parts("scales_json");
  parts.config.layers[1].cache.v_dim = 4;
  CHECK(refusal("onnxruntime-genai", parts.input()) == "no error");
}

TEST_CASE("scales files: LightLLM compares the architecture, and its word for none") {
  CHECK(lightllm_architecture({{"architectures", {"A", "B"}}}) == "A");
  for (const char* config : {"{}", R"({"architectures": []})", R"({"architectures": "A"})"})
    CHECK(lightllm_architecture(parse_json(config)) == "unknown_architecture");
}
