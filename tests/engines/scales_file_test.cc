// kv_cache_scales.json as the validators of SGLang and Aphrodite 0.6 take it: check_is_fp8,
// check_tp_ranks, check_current_rank and check_model_type, each with a file that fails it.
#include "engines/support/engine_case.h"
#include "engines/support/family_case.h"
#include "support/catch.h"

using namespace kvcal;
using test::contains;
using test::EngineCase;
using test::kLlama;
using test::recorded_checkpoints;
using test::recorded_config;
using test::tells;

namespace {

Json good_file() {
  return {{"model_type", "llama"},
          {"kv_cache",
           {{"dtype", "float8_e4m3fn"}, {"scaling_factor", {{"0", {{"0", 0.25}, {"1", 0.5}}}}}}}};
}

VerifyOptions with_file(const EngineCase& subject, int64_t tp_size = 1) {
  return {.kv_cache_dtype = "fp8_e4m3",
          .is_rocm = false,
          .tp_size = tp_size,
          .scales = subject.path("kv_cache_scales.json")};
}

VerifyReport verify_file(const Json& file, const std::string& engine = "sglang",
                         bool is_rocm = false) {
  EngineCase subject(kLlama);
  subject.write("kv_cache_scales.json", file);
  VerifyOptions options = with_file(subject);
  options.is_rocm = is_rocm;
  return subject.verify(engine, options);
}

/// The validators' word on a file, and that the engine goes on with 1.0.
void check_rejected(const Json& file, std::string_view part) {
  const VerifyReport report = verify_file(file);
  INFO(part << dump_json(report_json(report)));
  CHECK(report.loads);
  CHECK(report.layers.at(0).k.values == std::vector<float>{1.0f});
  CHECK(tells(report, Severity::kError, "uses 1.0 in every layer"));
  CHECK(tells(report, Severity::kError, part));
}

}  // namespace

TEST_CASE("a good file gives K and V of each layer one scale; only Aphrodite doubles on ROCm") {
  const VerifyReport report = verify_file(good_file());
  REQUIRE(report.layers.size() == 2);
  CHECK(report.layers[1].k.values == std::vector<float>{0.5f});
  CHECK(report.layers[1].v.values == std::vector<float>{0.5f});
  CHECK(report.layers[1].v.source == "kv_cache_scales.json");
  CHECK_FALSE(loses_scales(report));
  CHECK(verify_file(good_file(), "sglang", true).layers[0].k.values[0] == 0.25f);
  CHECK(verify_file(good_file(), "aphrodite-0.6", true).layers[0].k.values[0] == 0.5f);
}

TEST_CASE("what the validators reject") {
  Json file = good_file();
  file["kv_cache"]["dtype"] = "float8_e5m2";
  check_rejected(file, "kv_cache.dtype is 'float8_e5m2'");
  file = good_file();
  file["model_type"] = "mistral";
  check_rejected(file, "model_type is \"mistral\"");
  file = good_file();
  file["model_type"] = nullptr;
  check_rejected(file, "model_type is null");
  file = good_file();
  file.erase("model_type");
  check_rejected(file, "model_type");
  file = good_file();
  file["kv_cache"]["scaling_factor"]["1"] = file["kv_cache"]["scaling_factor"]["0"];
  check_rejected(file, "2 ranks, the engine runs 1");
  file = good_file();
  file["kv_cache"]["scaling_factor"] = {{"1", {{"0", 0.25}, {"1", 0.5}}}};
  check_rejected(file, "scaling_factor.0");
  file = good_file();
  file["kv_cache"]["scaling_factor"]["0"].erase("1");
  check_rejected(file, "has 1 layer, the model 2");
  file = good_file();
  file["kv_cache"]["scaling_factor"]["0"] = {{"0", 0.25}, {"2", 0.5}};
  check_rejected(file, "has a layer '2'");
  file = good_file();
  file["kv_cache"]["scaling_factor"]["0"]["1"] = Json::array();
  check_rejected(file, "a number");
  check_rejected(Json::array(), "an object");
}

TEST_CASE("ranks of their own values are shown each") {
  EngineCase subject(kLlama);
  Json file = good_file();
  file["kv_cache"]["scaling_factor"]["1"] = {{"0", 0.125}, {"1", 0.5}};
  subject.write("kv_cache_scales.json", file);
  const VerifyReport report = subject.verify("sglang", with_file(subject, 2));
  CHECK(report.layers[0].k.values == std::vector<float>{0.25f, 0.125f});
  CHECK(report.layers[1].k.values == std::vector<float>{0.5f});
}

TEST_CASE("engines and caches that do not read the file") {
  CHECK(tells(verify_file(good_file(), "vllm"), Severity::kError, "does not read"));
  EngineCase subject(kLlama);
  subject.write("kv_cache_scales.json", good_file());
  VerifyOptions options = with_file(subject);
  options.kv_cache_dtype = "auto";
  const VerifyReport report = subject.verify("sglang", options);
  CHECK(tells(report, Severity::kNote, "for FP8 E4M3 caches only"));
  CHECK(contains(report.findings.front().remedy, "--quantization-param-path kv_cache_scales.json"));
  subject.config()["model_type"] = "gemma2";
  CHECK_FALSE(subject.verify("sglang", with_file(subject)).loads);
}

TEST_CASE("SGLang cannot be given the file where the checkpoint makes parameters of the scales") {
  EngineCase subject(kLlama);
  subject.write("kv_cache_scales.json", good_file());
  subject.quantize(
      {{"quant_method", "compressed-tensors"},
       {"kv_cache_scheme", {{"type", "float"}, {"num_bits", 8}, {"strategy", "tensor"}}}});
  const VerifyReport report = subject.verify("sglang", with_file(subject));
  CHECK_FALSE(report.loads);
  CHECK(tells(report, Severity::kError, "assigns numbers to them"));
}

TEST_CASE("a file that is not there is the user's mistake") {
  EngineCase subject(kLlama);
  CHECK_THROWS_AS(subject.verify("sglang", with_file(subject)), Error);
}

namespace {

/// A file of the engine's own form beside a model of two layers with two heads of 16.
VerifyReport verify_own(const std::string& engine, const Json& file) {
  EngineCase subject(kLlama);
  subject.write("scales.json", file);
  return subject.verify(engine, {.scales = subject.path("scales.json")});
}

Json lightllm_file() {
  return {{"version", "1.0"},
          {"architectures", "LlamaForCausalLM"},
          {"quant_type", "per_head"},
          {"qmin", -448.0},
          {"qmax", 448.0},
          {"num_layers", 2},
          {"num_head", 2},
          {"scales_shape", {2, 4}},
          {"scales", {{0.25, 0.5, 0.75, 1.5}, {0.125, 0.0625, 2.0, 3.0}}}};
}

}  // namespace

TEST_CASE("LightLLM holds the scales of its own file") {
  Json file = lightllm_file();
  const VerifyReport report = verify_own("lightllm", file);
  INFO(dump_json(report_json(report)));
  CHECK(report.kv_cache_dtype == "fp8_e4m3");
  REQUIRE(report.layers.size() == 2);
  CHECK(report.layers[0].k.values == std::vector<float>{0.25f, 0.5f});
  CHECK(report.layers[1].v.values == std::vector<float>{2.0f, 3.0f});
  CHECK(report.layers[1].v.source == "scales.json");
  CHECK(tells(report, Severity::kWarning, "not known"));
  CHECK_FALSE(loses_scales(report));
  file["qmax"] = 240.0;
  CHECK_FALSE(verify_own("lightllm", file).loads);
  CHECK(tells(verify_own("lightllm", file), Severity::kError, "key 'qmax' is 240"));
  CHECK_FALSE(verify_own("lightllm", good_file()).loads);
}

TEST_CASE("ONNX Runtime GenAI holds the scales of its own file, of INT8 by channel too") {
  const Json of_channels(std::vector<float>(32, 0.5f));
  Json file = {{"scales", {{"k_scales", {of_channels, 0.25}}, {"v_scales", {0.125, 1.5}}}},
               {"qmax", 128.0},
               {"layer_ids", {0, 1}}};
  file["scales"]["k_scales"][0][31] = 0.75;
  const VerifyReport report = verify_own("onnxruntime-genai", file);
  INFO(dump_json(report_json(report)));
  CHECK(report.kv_cache_dtype == "int8");
  REQUIRE(report.layers.size() == 2);
  CHECK(report.layers[0].k.values.size() == 32);
  CHECK(report.layers[0].k.values.back() == 0.75f);
  CHECK(report.layers[1].v.values == std::vector<float>{1.5f});
  file.erase("qmax");
  CHECK_FALSE(verify_own("onnxruntime-genai", file).loads);
}

TEST_CASE("engines with files of their own read no scales of a checkpoint") {
  for (const std::string engine : {"lightllm", "onnxruntime-genai"}) {
    EngineCase subject(kLlama);
    for (const char* layer : {"0", "1"})
      for (const char* side : {"k", "v"})
        subject.add("model.layers." + std::string(layer) + ".self_attn." + side + "_scale", 0.5f);
    const VerifyReport report = subject.verify(engine);
    INFO(dump_json(report_json(report)));
    CHECK(loses_scales(report));
    CHECK(tells(report, Severity::kWarning, "not known"));
    CHECK(report.findings.front().remedy.find("--format " + engine) != std::string::npos);
  }
}

namespace {

std::string ascend_scale(const std::string& layer, const std::string& side) {
  return "model.layers." + layer + ".self_attn." + side + "_proj.kv_cache_scale";
}

/// Llama with an INT8 cache of vLLM-Ascend's.
struct AscendCase : EngineCase {
  /// described: layers whose scales the file names; held: those that have scales.
  AscendCase(const std::vector<std::string>& described, const std::vector<std::string>& held)
      : EngineCase(kLlama) {
    Json description{{"kv_cache_type", "C8"}};
    for (const std::string& layer : described)
      for (const char* side : {"k", "v"}) description[ascend_scale(layer, side)] = "C8";
    write("quant_model_description.json", description);
    for (const std::string& layer : held)
      for (const char* side : {"k", "v"})
        add(ascend_scale(layer, side), "F32", {32},
            std::vector<float>(32, side[0] == 'k' ? 0.5f : 0.25f));
  }
};

}  // namespace

TEST_CASE("vLLM-Ascend holds the scales of an INT8 cache by channel") {
  AscendCase subject({"0", "1"}, {"0", "1"});
  const VerifyReport report = subject.verify("vllm-ascend");
  INFO(dump_json(report_json(report)));
  CHECK(report.kv_cache_dtype == "int8");
  REQUIRE(report.layers.size() == 2);
  CHECK(report.layers[1].k.values == std::vector<float>(32, 0.5f));
  CHECK(report.layers[1].v.values == std::vector<float>(32, 0.25f));
  CHECK_FALSE(loses_scales(report));
  // One a head, as other engines take them.
  subject.add(ascend_scale("1", "v"), "F32", {2}, {0.5f, 0.5f});
  CHECK_FALSE(subject.verify("vllm-ascend").loads);
}

TEST_CASE("vLLM-Ascend holds scales by channel of the families of which it was seen to do so") {
  const Json record = test::engine_fixture("c8_vllm_ascend.json");
  size_t held = 0;
  for (const auto& [family, row] : record.at("families").items()) {
    if (row.at("answer") != "rounded") continue;
    INFO(family);
    EngineCase subject(recorded_config(family));
    const ModelConfig config = parse_model_config(subject.config());
    Json description{{"kv_cache_type", "C8"}};
    const Json& names = recorded_checkpoints().at("families").at(family).at("forms");
    for (const auto& [pattern, tensor] : names.at("compressed-tensors").at(2).items())
      for (const Json& layer : tensor.at(2)) {
        std::string name = pattern;
        name.replace(name.find("{}"), 2, std::to_string(layer.get<int64_t>()));
        const size_t side = name.size() - std::string("k_scale").size();
        name.replace(side + 1, std::string::npos, "_proj.kv_cache_scale");
        description[name] = "C8";
        const LayerCache& cache = config.cache(layer.get<int64_t>());
        const int64_t channels = cache.heads * cache.k_dim;
        subject.add(name, "F32", {channels},
                    std::vector<float>(static_cast<size_t>(channels), 0.5f));
      }
    subject.write("quant_model_description.json", description);
    const VerifyReport report = subject.verify("vllm-ascend");
    INFO(dump_json(report_json(report)));
    CHECK(report.loads);
    CHECK(report.kv_cache_dtype == "int8");
    CHECK_FALSE(loses_scales(report));
    ++held;
  }
  CHECK(held >= 6);
}

TEST_CASE("vLLM-Ascend gives a layer an INT8 cache where its file names the layer's scales") {
  const VerifyReport left_out = AscendCase({"1"}, {"1"}).verify("vllm-ascend");
  INFO(dump_json(report_json(left_out)));
  REQUIRE(left_out.layers.size() == 2);
  CHECK(left_out.layers[0].is_16_bit);
  CHECK_FALSE(left_out.layers[1].is_16_bit);
  CHECK_FALSE(loses_scales(left_out));
  CHECK(tells(left_out, Severity::kNote, "names no scales of it"));

  const VerifyReport unnamed = AscendCase({"1"}, {"0", "1"}).verify("vllm-ascend");
  CHECK(unnamed.layers[0].is_16_bit);
  CHECK(tells(unnamed, Severity::kError, "does not name them"));

  const VerifyReport missing = AscendCase({"0", "1"}, {"1"}).verify("vllm-ascend");
  CHECK_FALSE(missing.layers[0].is_16_bit);
  CHECK(tells(missing, Severity::kError, "it uses 1.0"));
}
