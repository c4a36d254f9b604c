#include <algorithm>

#include "convert/support/convert_case.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// Checkpoints that llm-compressor wrote.
fs::path theirs(const std::string& name) {
  return test::tests_folder() / "fixtures" / "fp8" / name;
}

/// Scales have the same values (theirs have the dtype of the model, ours float32), all else has the
/// same bytes.
void check_same_model(const ModelDir& actual, const ModelDir& expected) {
  CHECK(actual.tensor_names() == expected.tensor_names());
  for (const std::string& name : expected.tensor_names()) {
    INFO(name);
    const TensorView &a = actual.tensor(name), &b = expected.tensor(name);
    CHECK(a.shape == b.shape);
    if (name.ends_with("_scale"))
      CHECK(values_of(actual, name) == values_of(expected, name));
    else
      CHECK(std::ranges::equal(a.bytes, b.bytes));
  }
  CHECK(sorted_keys(actual.config()) == sorted_keys(expected.config()));
}

/// To a form and back; without the manifest nothing tells the second what the first knew.
void check_back(const std::string& name, const std::string& stored) {
  const ScratchFolder scratch;
  INFO(name << " by " << stored);
  convert({.checkpoint = theirs(name), .formats = {stored}, .target = scratch / "there"});
  convert({.checkpoint = scratch / "there",
           .formats = {"compressed-tensors"},
           .target = scratch / "back"});
  check_same_model(ModelDir(scratch / "back"), ModelDir(theirs(name)));
}

std::string refusal(const std::string& name, const std::string& format) {
  return refusal_of({.checkpoint = theirs(name), .formats = {format}});
}

}  // namespace

TEST_CASE("checkpoints of llm-compressor come back with all their values") {
  for (const char* stored : {"compressed-tensors", "modelopt", "quark", "fp8"})
    check_back("static_kv", stored);
  for (const char* stored : {"modelopt", "quark", "fp8"}) check_back("moe", stored);
  check_back("token_kv_heads", "compressed-tensors");
}

TEST_CASE("checkpoints of llm-compressor that a form has no word for are refused") {
  const std::string blocks = "a weight of strategy block 32x32 with inputs dynamic by groups of 16";
  CHECK(refusal("block", "modelopt") ==
        "ModelOpt has no word for " + blocks +
            "; expected FP8 (a scale a weight, static inputs), FP8_DYNAMIC or FP8_BLOCK");
  CHECK(contains(refusal("block", "quark"), "Quark's form has no word for " + blocks));
  // Its groups are as wide as its blocks.
  CHECK(contains(refusal("block", "fp8"), "quant_method fp8 has no word for " + blocks));
  for (const char* format : {"modelopt", "quark", "fp8"})
    CHECK(contains(refusal("mixed", format),
                   " has no word for a quantized embedding, model.embed_tokens; use "
                   "compressed-tensors"));
}

TEST_CASE("without our manifest only the name of the observer is lost") {
  const ScratchFolder scratch;
  const Calibrated run(model_fixture("llama"), recipe_text("scheme: FP8", "tensor"), scales_apart);
  write_calibrated(run.input(), "compressed-tensors", scratch / "source");
  for (const char* stored : {"modelopt", "quark", "fp8", "compressed-tensors"}) {
    INFO(stored);
    const fs::path there = scratch / "there" / stored, back = scratch / "back" / stored;
    convert({.checkpoint = scratch / "source",
             .formats = {stored},
             .target = there,
             .has_manifest = false});
    convert({.checkpoint = there, .formats = {"compressed-tensors"}, .target = back});
    Json expected = ModelDir(scratch / "source").config();
    if (stored != std::string("compressed-tensors"))
      expected["quantization_config"]["kv_cache_scheme"]["observer"] = nullptr;
    CHECK(ModelDir(back).config() == expected);
    auto files = outputs_of(back), source = outputs_of(scratch / "source");
    files.erase("config.json");
    source.erase("config.json");
    CHECK(difference(files, source) == "");
  }
}

TEST_CASE("layers without scales are known by config.json's ignore or by our manifest") {
  const ScratchFolder scratch;
  const Calibrated run(model_fixture("llama_tied_bf16"),
                       recipe_text("", "tensor", "model.layers.0.self_attn"), scales_apart);
  for (const char* format : {"compressed-tensors", "modelopt"}) {
    write_calibrated(run.input(), format, scratch / format);
    fs::remove(scratch / format / kManifestName);
  }
  CHECK(refusal_of({.checkpoint = scratch / "compressed-tensors", .formats = {"quark"}}) ==
        "no error");
  CHECK(refusal_of({.checkpoint = scratch / "modelopt", .formats = {"quark"}}) == "no error");
  // ModelOpt's earlier schema names no layers.
  for (const char* name : {"config.json", "hf_quant_config.json"}) {
    const fs::path file = scratch / "modelopt" / name;
    Json config = parse_json(read_text(file));
    for (const char* member : {"quantization_config", "quantization"})
      if (config.contains(member))
        for (const char* key : {"kv_cache_quantized_layers", "kv_cache_schema_version"})
          config[member].erase(key);
    write_file(file, dump_json(config));
  }
  CHECK(refusal_of({.checkpoint = scratch / "modelopt", .formats = {"quark"}}) ==
        (scratch / "modelopt").string() +
            ": 2 of 3 layers have KV scales; model.layers.0.self_attn has none, and "
            "quantization_config does not leave it out (ignore, or kv_cache_quantized_layers), nor "
            "--kv-cache-dtype-skip-layers, where a command has that");
}

TEST_CASE("an embedding and the head tied to it stay compressed-tensors'") {
  const ScratchFolder scratch;
  const std::string recipe = R"(default_stage:
  default_modifiers:
    QuantizationModifier:
      config_groups:
        group_0:
          targets: ['re:.*embed_tokens$', lm_head]
          weights: {num_bits: 8, type: float, strategy: channel, symmetric: true})";
  const Calibrated run(model_fixture("llama_tied_bf16"), recipe, scales_apart);
  write_calibrated(run.input(), "compressed-tensors", scratch / "source");
  for (const auto& [format, title] :
       {std::pair{"modelopt", "ModelOpt"}, {"quark", "Quark"}, {"fp8", "fp8"}})
    CHECK(refusal_of({.checkpoint = scratch / "source", .formats = {format}}) ==
          std::string(title) +
              " has no word for a quantized embedding, model.embed_tokens; use "
              "compressed-tensors");
}
