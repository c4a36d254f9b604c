// Layers that a checkpoint leaves in 16 bits. What vLLM makes of them, untold and told, is recorded
// by reference/engines_skipped.py; vLLM 0.33 and Aphrodite 0.24.1 gave the same answers.
#include <algorithm>
#include <memory>

#include "engines/support/recorded_variant.h"
#include "engines/verify.h"
#include "support/catch.h"

using namespace kvcal;
using test::contains;
using test::EngineCase;
using test::tells;

namespace {

const Json kScheme = {{"type", "float"},
                      {"num_bits", 8},
                      {"strategy", "tensor"},
                      {"symmetric", true},
                      {"dynamic", false}};

/// A checkpoint whose layer 0 keeps 16 bits.
struct CompressedTensors : EngineCase {
  CompressedTensors() : EngineCase(test::kLlama) {
    quantize({{"quant_method", "compressed-tensors"},
              {"format", "dense"},
              {"config_groups", Json::object()},
              {"ignore", {"model.layers.0.self_attn", "Linear"}},
              {"kv_cache_scheme", kScheme}});
    add("model.layers.1.self_attn.k_scale", 0.5f);
    add("model.layers.1.self_attn.v_scale", 0.25f);
  }
};

struct ModelOpt : EngineCase {
  explicit ModelOpt(bool has_map) : EngineCase(test::kLlama) {
    Json config = {{"quant_method", "modelopt"},
                   {"quant_algo", "FP8"},
                   {"ignore", {"*"}},
                   {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}}};
    if (has_map) {
      config["kv_cache_quantized_layers"] = {{"model.layers.1.self_attn", {{"quant_algo", "FP8"}}}};
      config["kv_cache_schema_version"] = 1;
    }
    quantize(config);
    add("model.layers.1.self_attn.k_proj.k_scale", "F32", {}, {0.5f});
    add("model.layers.1.self_attn.v_proj.v_scale", "F32", {}, {0.25f});
  }
};

/// Layer 0 left out in either form.
std::unique_ptr<EngineCase> left_out(bool is_modelopt) {
  if (is_modelopt) return std::make_unique<ModelOpt>(true);
  return std::make_unique<CompressedTensors>();
}

const VerifyOptions kTold{.scales = {}, .skip_layers = {0}};

const Finding& finding_of(const VerifyReport& report, int64_t layer) {
  const auto found = std::ranges::find_if(report.findings, [&](const Finding& finding) {
    return finding.layers == std::vector<int64_t>{layer};
  });
  REQUIRE(found != report.findings.end());
  return *found;
}

}  // namespace

TEST_CASE("skipped layers: verify says of every case what vLLM was seen to do") {
  const Json& record = test::record_of("skipped_vllm");
  REQUIRE(record.at("variants").size() == 12);
  for (const char* engine : {"vllm@0.32", "vllm@0.33", "aphrodite"})
    for (const auto& [name, variant] : record.at("variants").items()) {
      INFO(engine << " " << name);
      const VerifyReport report = test::verify_variant(engine, record.at("config"), variant);
      const Json& seen = variant.at("seen").at("layers");
      REQUIRE(report.layers.size() == seen.size());
      for (size_t layer = 0; layer < seen.size(); ++layer) {
        INFO("layer " << layer);
        const bool is_16_bit = seen[layer].at("cache_dtype") == "auto";
        CHECK(report.layers[layer].is_16_bit == is_16_bit);
        if (is_16_bit) continue;
        CHECK(report.kv_cache_dtype == seen[layer].at("cache_dtype"));
        CHECK(test::agrees(report.layers[layer].k, seen[layer].at("k")));
        CHECK(test::agrees(report.layers[layer].v, seen[layer].at("v")));
      }
    }
}

TEST_CASE("skipped layers: an engine that can leave layers out has to be told which") {
  for (const char* engine : {"vllm@0.32", "vllm@0.33", "aphrodite"})
    for (const bool is_modelopt : {false, true}) {
      INFO(engine << (is_modelopt ? ", ModelOpt's map" : ", ignore"));
      const auto subject = left_out(is_modelopt);
      const VerifyReport untold = subject->verify(engine);
      REQUIRE(untold.layers.size() == 2);
      CHECK(untold.layers[0].k.values == std::vector{1.0f});
      CHECK_FALSE(untold.layers[0].is_16_bit);
      CHECK_FALSE(loses_scales(untold));
      const Finding& warning = finding_of(untold, 0);
      CHECK(warning.severity == Severity::kWarning);
      CHECK(contains(warning.message, "unless told, it quantizes it: it uses 1.0"));
      CHECK(warning.remedy == "start it with --kv-cache-dtype-skip-layers 0");
      const VerifyReport told = subject->verify(engine, kTold);
      CHECK(told.layers[0].is_16_bit);
      CHECK(told.layers[1].k.values == std::vector{0.5f});
      CHECK(finding_of(told, 0).severity == Severity::kNote);
      CHECK(report_json(told)["layers"][0]["k_source"] == "16 bits");
    }
}

TEST_CASE("skipped layers: an engine that stores all layers alike loses what was meant") {
  for (const char* engine : {"sglang", "tgi-branch", "transformers@5.23"}) {
    INFO(engine);
    const VerifyReport report =
        CompressedTensors().verify(engine, {.kv_cache_dtype = "fp8", .scales = {}});
    if (!report.loads) continue;
    CHECK(tells(report, Severity::kError, "it quantizes all layers alike"));
  }
  const VerifyReport sglang = CompressedTensors().verify("sglang");
  CHECK(finding_of(sglang, 0).remedy ==
        "serve it with an engine that can leave layers out: vLLM, Aphrodite");
  CHECK(tells(CompressedTensors().verify("transformers@5.23"), Severity::kError,
              "it computes with uninitialized memory"));
  CHECK(tells(CompressedTensors().verify("sglang", kTold), Severity::kError,
              "it has no argument that leaves layers in 16 bits"));
}

TEST_CASE("skipped layers: a gap that the checkpoint does not declare is a mistake") {
  CHECK(tells(ModelOpt(false).verify("vllm"), Severity::kError, "here, and has others"));
  CHECK_FALSE(loses_scales(ModelOpt(false).verify("vllm", kTold)));
}

TEST_CASE("skipped layers: scales of a layer that is left out do nothing") {
  CompressedTensors subject;
  subject.add("model.layers.0.self_attn.k_scale", 0.5f);
  subject.add("model.layers.0.self_attn.v_scale", 0.25f);
  CHECK(tells(subject.verify("vllm", kTold), Severity::kNote, "these scales do nothing"));
}

TEST_CASE("skipped layers: only layers of the model can be left out") {
  const std::string message = test::message_of(
      [] { CompressedTensors().verify("vllm", {.scales = {}, .skip_layers = {2}}); });
  CHECK(contains(message, "layer 2 to skip is none of the layers with K and V, which are 0-1"));
}

TEST_CASE("skipped layers: the command that serves a checkpoint names them") {
  const CompressedTensors subject;
  subject.verify("vllm");  // writes the folder
  const ModelConfig config = read_model_config(ModelDir(subject.path()));
  const auto engines = served_engines({{.checkpoint = subject.path(), .shown = "."}}, config,
                                      {"vllm", "aphrodite", "sglang"}, 1);
  CHECK(engines.at(0).outcome == LoadOutcome::kLoaded);
  CHECK(engines[0].note == "vllm serve . --kv-cache-dtype-skip-layers 0");
  CHECK(engines[1].note == "aphrodite run . --kv-cache-dtype-skip-layers 0");
  CHECK(engines[2].outcome == LoadOutcome::kLost);
  CHECK(contains(engines[2].note, "leaves this cache in 16 bits"));
}
