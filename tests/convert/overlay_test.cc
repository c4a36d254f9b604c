#include "export/checkpoint_copy.h"

#include "convert/support/convert_case.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// A checkpoint of ours with scales of K and V.
void write_scales(const std::string& model, const std::string& format, const std::string& strategy,
                  const fs::path& folder, const std::string& ignored = {}) {
  const Calibrated run(model_fixture(model), recipe_text("", strategy, ignored), scales_apart);
  write_calibrated(run.input(), format, folder);
}

void write_overlay_of(const fs::path& source, const std::string& format, const fs::path& folder) {
  convert({.checkpoint = source, .formats = {format}, .target = folder, .scales_only = true});
}

/// FP8 weights in that form; kv_strategy as in recipe_text.
void write_fp8(const std::string& stored, const std::string& kv_strategy, const fs::path& folder) {
  const Calibrated run(model_fixture("llama"), recipe_text("scheme: FP8", kv_strategy),
                       scales_apart);
  write_calibrated(run.input(), stored, folder);
}

}  // namespace

TEST_CASE("overlay: put on the 16-bit model it is what the conversion would have written") {
  for (const std::string model : {"llama", "qwen2", "gemma3_multimodal"})
    for (const std::string format : {"compressed-tensors", "modelopt", "quark", "tgi"}) {
      const ScratchFolder scratch;
      INFO(model << " " << format);
      write_scales(model, "compressed-tensors", "tensor", scratch / "source");
      convert({.checkpoint = scratch / "source", .formats = {format}, .target = scratch / "whole"});
      write_overlay_of(scratch / "source", format, scratch / "overlay");
      apply(scratch / "overlay", model_fixture(model), scratch / "applied");
      CHECK(difference(outputs_of(scratch / "applied"), outputs_of(scratch / "whole")) == "");
    }
}

TEST_CASE("overlay: keeps scales of heads and layers without") {
  const ScratchFolder scratch;
  const std::string model = "llama_tied_bf16", ignored = "model.layers.2.self_attn";
  write_scales(model, "compressed-tensors", "attn_head", scratch / "source", ignored);
  write_overlay_of(scratch / "source", "compressed-tensors", scratch / "overlay");
  CHECK(fs::exists(scratch / "overlay" / "vllm.yaml"));
  apply(scratch / "overlay", model_fixture(model), scratch / "applied");
  CHECK(difference(outputs_of(scratch / "applied"), outputs_of(scratch / "source")) == "");
}

TEST_CASE("overlay: dropped into the folder of a sharded model it is the applied one") {
  for (const std::string format : {"compressed-tensors", "modelopt", "quark", "tgi"}) {
    const ScratchFolder scratch;
    INFO(format);
    write_scales("qwen2", "compressed-tensors", "tensor", scratch / "source");
    write_overlay_of(scratch / "source", format, scratch / "overlay");
    apply(scratch / "overlay", model_fixture("qwen2"), scratch / "applied");
    copy_folder(model_fixture("qwen2"), scratch / "dropped");
    copy_folder(scratch / "overlay", scratch / "dropped");
    fs::remove(scratch / "dropped" / "expected.safetensors");  // the fixture's, no part of a model
    auto dropped = outputs_of(scratch / "dropped");
    CHECK(dropped.erase(std::string(kOverlayName)) == 1);
    CHECK(difference(dropped, outputs_of(scratch / "applied")) == "");
    // Readers take it for the checkpoint that it is.
    CHECK(convert({.checkpoint = scratch / "dropped",
                   .formats = {"scales-json"},
                   .target = scratch / "json"})
              .losses.size() == 2);
  }
}

TEST_CASE("overlay: one of the 16-bit model goes on its FP8 checkpoints, in their form") {
  const ScratchFolder scratch;
  write_scales("llama", "compressed-tensors", "tensor", scratch / "16bit");
  for (const std::string format : {"compressed-tensors", "modelopt", "tgi"})
    write_overlay_of(scratch / "16bit", format, scratch / ("overlay-" + format));
  for (const std::string stored : {"compressed-tensors", "fp8", "modelopt", "quark"}) {
    INFO(stored);
    write_fp8(stored, "", scratch / stored / "plain");
    write_fp8(stored, "tensor", scratch / stored / "expected");
    for (const std::string format : {"compressed-tensors", "modelopt"}) {
      const fs::path applied = scratch / stored / ("applied-" + format);
      apply(scratch / ("overlay-" + format), scratch / stored / "plain", applied);
      // The bytes of a run that quantized weights and cache together.
      CHECK(difference(outputs_of(applied), outputs_of(scratch / stored / "expected")) == "");
    }
  }
}

TEST_CASE("overlay: one made of an FP8 checkpoint goes on it and on the 16-bit model") {
  const ScratchFolder scratch;
  write_fp8("fp8", "", scratch / "plain");
  write_fp8("fp8", "tensor", scratch / "expected");
  write_overlay_of(scratch / "expected", "fp8", scratch / "overlay");
  apply(scratch / "overlay", scratch / "plain", scratch / "applied");
  CHECK(difference(outputs_of(scratch / "applied"), outputs_of(scratch / "expected")) == "");
  convert({.checkpoint = model_fixture("llama"),
           .formats = {"modelopt"},
           .target = scratch / "16bit",
           .options = {.scales = scratch / "overlay", .strategy = {}, .dialect = {}}});
  write_scales("llama", "modelopt", "tensor", scratch / "modelopt");
  CHECK(difference(outputs_of(scratch / "16bit"), outputs_of(scratch / "modelopt")) == "");
}

TEST_CASE("overlay: holds the scales and no weight") {
  const ScratchFolder scratch;
  write_scales("qwen2", "compressed-tensors", "tensor", scratch / "source");
  write_overlay_of(scratch / "source", "compressed-tensors+tgi", scratch / "overlay");
  std::vector<std::string> names;
  for (const auto& [name, content] : contents_of(scratch / "overlay")) names.push_back(name);
  CHECK(names == std::vector<std::string>{"config.json", "kvcal_manifest.json",
                                          "kvcal_overlay.json", "model-kv-scales.safetensors",
                                          "model.safetensors.index.json"});
  const SafetensorsFile scales(scratch / "overlay" / kScalesFileName);
  CHECK(scales.tensors().size() == 6);
  const Overlay overlay = read_overlay(scratch / "overlay");
  CHECK(overlay.format == "compressed-tensors+tgi");
  CHECK(overlay.model_type == "qwen2");
  CHECK(overlay.num_hidden_layers == 2);
  CHECK(overlay.config.size() == 2);
  CHECK(overlay.config.at("kv_cache_torch_dtype") == "float8_e4m3fn");
  // Of a model in one file there is no index to drop.
  write_scales("llama", "compressed-tensors", "tensor", scratch / "single");
  write_overlay_of(scratch / "single", "tgi", scratch / "single-overlay");
  CHECK_FALSE(fs::exists(scratch / "single-overlay" / kIndexFileName));
  write_overlay_of(scratch / "single", "scales-json", scratch / "json");
  CHECK(outputs_of(scratch / "json").size() == 1);
}

TEST_CASE("overlay: refuses FP8 weights, another model and what is not one") {
  const ScratchFolder scratch;
  write_fp8("quark", "tensor", scratch / "fp8");
  CHECK(refusal_of({.checkpoint = scratch / "fp8", .formats = {"modelopt"}, .scales_only = true}) ==
        "an overlay holds scales of K and V; FP8 weights make a checkpoint of their own");
  write_scales("qwen2", "compressed-tensors", "tensor", scratch / "qwen2");
  const std::string overlay = (scratch / "overlay").string();
  write_overlay_of(scratch / "qwen2", "tgi", overlay);
  const auto refusal = [&](const std::string& model) {
    return message_of([&] { apply(overlay, model_fixture(model), scratch / "out"); });
  };
  CHECK(refusal("llama") ==
        overlay + ": is of a 'qwen2' of 2 layers, the checkpoint is a 'llama' of 2");
  CHECK(refusal("qwen2_window") ==
        overlay + ": is of a 'qwen2' of 2 layers, the checkpoint is a 'qwen2' of 3");
  write_json(scratch / "overlay" / kOverlayName, {{"format", "tgi"}, {"model_type", "qwen2"}});
  CHECK(refusal("qwen2") == overlay +
                                "/kvcal_overlay.json: key 'num_hidden_layers' is missing, "
                                "expected an integer");
  fs::remove(scratch / "overlay" / kOverlayName);
  CHECK(refusal("qwen2") ==
        overlay + ": is no overlay: it has no kvcal_overlay.json, which --scales-only writes");
}
