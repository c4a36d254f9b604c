#include "engines/engine_verdicts.h"

#include "engines/support/family_case.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace kvcal {

namespace {

using Names = std::vector<std::string>;

struct Warnings : SilentDiagnostics {
  void warn(const std::string& message) override { all.push_back(message); }
  Names all;
};

Names chosen(const Names& engines, std::string_view model_type, bool has_weights = false) {
  SilentDiagnostics silent;
  return formats_for(engines, {.model_type = model_type, .has_weights = has_weights}, silent);
}

/// Of a model with that config.json.
Names chosen_of(const Names& engines, const Json& json, Diagnostics& diagnostics) {
  const ModelConfig config = parse_model_config(json);
  const std::string model_type = json.at("model_type");
  return formats_for(engines, {.model_type = model_type, .json = &json, .config = &config},
                     diagnostics);
}

}  // namespace

TEST_CASE("formats_for: one format serves all where all read it") {
  CHECK(chosen({"vllm"}, "llama") == Names{"compressed-tensors"});
  CHECK(chosen({"vllm", "sglang", "transformers@5.23", "tgi"}, "llama") ==
        Names{"compressed-tensors"});
  CHECK(chosen({"tgi"}, "llama") == Names{"tgi"});
}

TEST_CASE("formats_for: the form depends on the family") {
  CHECK(chosen({"sglang"}, "deepseek_v3") == Names{"modelopt"});
  CHECK(chosen({"sglang"}, "qwen3") == Names{"compressed-tensors+scales-json"});
  CHECK(chosen({"sglang"}, "qwen2") == Names{"quark"});
  CHECK(chosen({"sglang"}, "granite") == Names{"quark"});
  CHECK(chosen({"vllm"}, "falcon") == Names{"compressed-tensors"});
}

TEST_CASE("formats_for: a checkpoint with a file beside it serves readers of either") {
  CHECK(chosen({"vllm", "sglang"}, "qwen3") == Names{"compressed-tensors+scales-json"});
}

TEST_CASE("formats_for: several formats where no single one serves all") {
  CHECK(chosen({"sglang", "tgi"}, "deepseek_v3") == Names{"modelopt", "tgi"});
  // SGLang knows the names of its parameters alone, which Quark's form has for such models.
  CHECK(chosen({"transformers@5.23", "sglang"}, "qwen2") == Names{"compressed-tensors", "quark"});
  CHECK(chosen({"vllm", "sglang"}, "qwen2") == Names{"quark"});
}

TEST_CASE("formats_for: quantized weights need a format that describes them") {
  CHECK(chosen({"tgi"}, "llama", true) == Names{"compressed-tensors"});
  CHECK(test::contains(test::message_of([] { chosen({"vllm"}, "qwen3_next", true); }),
                       "its loader stops at the scales of FP8 weights"));
}

TEST_CASE("formats_for: an engine that reads none is an error that names the readers") {
  const std::string message = test::message_of([] { chosen({"vllm"}, "deepseek_v3"); });
  CHECK(test::contains(message, "--for vllm: " + choose_engine("vllm").title() +
                                    " uses the KV scales of no format"));
  CHECK(test::contains(message, "they are read by sglang, tgi"));
  CHECK(test::contains(test::message_of([] { chosen({"vlm"}, "llama"); }), "vllm"));
}

TEST_CASE("formats_for: each version of an engine has its own answer") {
  const std::string message = test::message_of([] { chosen({"transformers@5.24"}, "llama"); });
  CHECK(test::contains(message, "looks for past_key_values"));
  CHECK(test::contains(message, ", transformers@5.23"));
  CHECK(chosen({"transformers@5.23"}, "llama") == Names{"compressed-tensors"});
  // vLLM 0.32 does not run the model, 0.33 does.
  CHECK(test::contains(test::message_of([] { chosen({"vllm@0.32"}, "aria_text"); }), "moe_topk"));
  CHECK(chosen({"vllm@0.33"}, "aria_text") == Names{"compressed-tensors"});
}

// Run with vLLM 0.33 (models/qwen2.py:352).
TEST_CASE("formats_for: windows of some layers, which vLLM's Qwen2 refuses") {
  SilentDiagnostics silent;
  Json json = test::recorded_config("qwen2");
  CHECK(chosen_of({"vllm"}, json, silent) == Names{"compressed-tensors"});
  json.update({{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 1}});
  CHECK(test::contains(test::message_of([&] { chosen_of({"vllm"}, json, silent); }),
                       "refuses the model: it takes a sliding window of all layers or of none"));
  CHECK(chosen_of({"transformers@5.23"}, json, silent) == Names{"compressed-tensors"});
}

TEST_CASE("formats_for: a text model inside with which the wrapper was not run") {
  Json json = test::recorded_config("mistral3");
  json["text_config"] = test::recorded_config("qwen3");
  Warnings diagnostics;
  CHECK(chosen_of({"vllm"}, json, diagnostics) == Names{"compressed-tensors"});
  REQUIRE(diagnostics.all.size() == 1);
  CHECK(test::contains(diagnostics.all[0], "mistral3 is not known"));
}

TEST_CASE("formats_for: engines of a form of their own, whose models are not known") {
  for (const auto& [engine, format] : {std::pair{"lightllm", "lightllm"},
                                       {"onnxruntime-genai", "onnxruntime-genai"},
                                       {"vllm-ascend", "ascend"},
                                       {"trtllm", "modelopt"}}) {
    INFO(engine);
    Warnings diagnostics;
    const Json json = test::recorded_config("qwen3");
    CHECK(chosen_of({engine}, json, diagnostics) == Names{format});
    REQUIRE(diagnostics.all.size() == 1);
    CHECK(test::contains(diagnostics.all[0], "qwen3 is not known"));
  }
  Warnings diagnostics;
  CHECK(formats_for({"lightllm"}, {.model_type = "llama", .has_weights = true}, diagnostics) ==
        Names{"lightllm"});
}

TEST_CASE("formats_for: a model that was not run is written in the usual format, with a warning") {
  Warnings diagnostics;
  CHECK(formats_for({"vllm"}, {.model_type = "new_model"}, diagnostics) ==
        Names{"compressed-tensors"});
  REQUIRE(diagnostics.all.size() == 1);
  CHECK(test::contains(diagnostics.all[0], "new_model is not known"));
}

}  // namespace kvcal
