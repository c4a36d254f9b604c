// Codes that the config does not describe, unknown keys and heads of other tasks, as verify tells
// them.
#include <algorithm>
#include <functional>

#include "checkpoint/safetensors.h"
#include "engines/verify.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

using namespace kvcal;
using test::contains;
using test::ScratchFolder;

namespace {

constexpr const char* kExcluded = "model.layers.1.mlp.down_proj";

/// What verify says of a fixture whose config was changed, and that has these tensors, too.
VerifyReport report_of(const fs::path& from, const std::string& engine,
                       const std::function<void(Json&)>& change,
                       const std::vector<std::string>& others = {}) {
  const ScratchFolder scratch;
  Json config = parse_json(read_text(from / "config.json"), {.has_python_constants = true});
  change(config);
  test::write_file(scratch / "config.json", dump_json(config));
  const SafetensorsFile file(from / "model.safetensors");
  std::vector<TensorSource> sources;
  for (const TensorView& view : file.tensors()) sources.push_back(source_of(file, view));
  const float one = 1.0f;
  std::vector<Tensor> added;
  for (const std::string& name : others)
    added.push_back(make_f32_tensor(name, Shape{1}, std::span(&one, 1)));
  for (const Tensor& tensor : added) sources.push_back(source_of(tensor));
  write_safetensors(scratch / "model.safetensors", std::move(sources), {});
  return verify_checkpoint(scratch.path(), engine, {});
}

/// What verify says of a fixture that lacks a tensor.
VerifyReport report_without(const fs::path& from, const std::string& engine,
                            const std::string& tensor) {
  const ScratchFolder scratch;
  fs::copy_file(from / "config.json", scratch / "config.json");
  const SafetensorsFile file(from / "model.safetensors");
  std::vector<TensorSource> sources;
  for (const TensorView& view : file.tensors())
    if (view.name != tensor) sources.push_back(source_of(file, view));
  REQUIRE(sources.size() + 1 == file.tensors().size());
  write_safetensors(scratch / "model.safetensors", std::move(sources), {});
  return verify_checkpoint(scratch.path(), engine, {});
}

bool says(const VerifyReport& report, Severity severity, const std::string& text) {
  return std::ranges::any_of(report.findings, [&](const Finding& finding) {
    return finding.severity == severity && contains(finding.message, text);
  });
}

fs::path fixtures() {
  return test::tests_folder() / "fixtures";
}

}  // namespace

TEST_CASE("verify: codes of a module that the config excludes stop vLLM's loader") {
  const auto exclude = [](Json& config) {
    config["quantization_config"]["ignored_layers"].push_back(kExcluded);
  };
  const fs::path form = fixtures() / "quantized" / "autofp8";
  const std::string text = std::string(kExcluded) +
                           ".weight (F8_E4M3): codes of a module that the config leaves in 16 bits";
  const VerifyReport vllm = report_of(form, "vllm", exclude);
  CHECK_FALSE(vllm.loads);
  CHECK(says(vllm, Severity::kError, "its loader stops at " + text));
  CHECK(says(report_of(form, "sglang", exclude), Severity::kWarning,
             "it stops at, or takes for numbers, " + text));
  const auto same = [](Json&) {};
  for (const char* engine : {"vllm", "sglang"})
    for (const Finding& finding : report_of(form, engine, same).findings)
      CHECK_FALSE(contains(finding.message, "codes of a module"));
}

// Seen with vLLM 0.32: "There is no module or parameter named
// 'layers.0.mlp.down_proj.activation_scale' in LlamaModel", the same of ministral3; a mistral3
// checkpoint with the same tensors loads with its K and V scales.
TEST_CASE(
    "verify: activation_scale says nothing of the cache, and vLLM knows it in mistral3 alone") {
  const auto same = [](Json&) {};
  const fs::path form = fixtures() / "quantized" / "fp8_scalar_names";
  const VerifyReport vllm = report_of(form, "vllm", same);
  CHECK_FALSE(vllm.loads);
  CHECK(says(vllm, Severity::kError, "its loader stops at activation_scale"));
  for (const Finding& finding : report_of(form, "transformers", same).findings)
    CHECK_FALSE(contains(finding.message, "activation_scale"));

  const auto quantize = [](Json& config) {
    config["quantization_config"] = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  };
  const VerifyReport wrapped =
      report_of(fixtures() / "models" / "mistral3", "vllm", quantize,
                {"language_model.model.layers.0.self_attn.k_proj.activation_scale"});
  for (const Finding& finding : wrapped.findings)
    CHECK_FALSE(contains(finding.message, "activation_scale"));
}

// vLLM 0.32 was run with such a checkpoint: it loads.
TEST_CASE("verify: a quantized weight without its scale is an error") {
  const fs::path form = fixtures() / "quantized" / "autofp8";
  const std::string scale = "model.layers.0.mlp.down_proj.weight_scale";
  for (const char* engine : {"vllm", "sglang", "transformers"}) {
    CHECK(says(report_without(form, engine, scale), Severity::kError, "missing: " + scale));
    for (const Finding& finding : report_of(form, engine, [](Json&) {}).findings)
      CHECK_FALSE(contains(finding.message, "missing: "));
  }
}

TEST_CASE("verify: unknown keys are warnings, as other commands tell or refuse them") {
  const fs::path form = fixtures() / "quantized" / "autofp8";
  const auto with = [&](const char* key, const Json& value) {
    return report_of(form, "vllm",
                     [&](Json& config) { config["quantization_config"][key] = value; });
  };
  CHECK(says(with("written_on", "a Sunday"), Severity::kWarning,
             "unknown key 'written_on' is passed over"));
  CHECK(says(with("exclude_modules", Json::array({"lm_head"})), Severity::kWarning,
             "unknown key 'exclude_modules'"));
  for (const Finding& finding : with("written_on", Json()).findings)
    CHECK_FALSE(contains(finding.message, "written_on"));
}

TEST_CASE("verify: a head of another task has a place where the architecture has one") {
  const auto as = [](const char* architecture) {
    return [=](Json& config) { config["architectures"] = {architecture}; };
  };
  const fs::path llama = fixtures() / "models" / "llama";
  const std::string text = "its loader stops at score.weight";
  CHECK(says(report_of(llama, "vllm", as("LlamaForCausalLM"), {"score.weight"}), Severity::kError,
             text));
  CHECK_FALSE(says(report_of(llama, "vllm", as("LlamaForSequenceClassification"), {"score.weight"}),
                   Severity::kError, text));
}
