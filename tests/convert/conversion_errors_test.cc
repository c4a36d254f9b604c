#include <limits>
#include <set>

#include "checkpoint/safetensors.h"
#include "convert/support/convert_case.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

const std::string kNothing = ": there is nothing to convert; give the scales with --scales";

void write_source(const fs::path& folder, const std::string& weights = "",
                  const std::string& strategy = "tensor", const std::string& model = "llama") {
  const Calibrated run(model_fixture(model), recipe_text(weights, strategy), scales_apart);
  write_calibrated(run.input(), "compressed-tensors", folder);
}

std::string refusal(const fs::path& checkpoint, const std::string& format,
                    const fs::path& scales = {}, std::optional<Strategy> strategy = {}) {
  return refusal_of({.checkpoint = checkpoint,
                     .formats = {format},
                     .options = {.scales = scales, .strategy = strategy, .dialect = {}}});
}

/// model.safetensors of a folder without some tensors and with others.
void change_tensors(const fs::path& folder, const std::set<std::string, std::less<>>& removed,
                    const std::vector<Tensor>& added) {
  const fs::path file = folder / kSingleFileName, changed = folder / "changed";
  {
    const SafetensorsFile source(file);
    std::vector<TensorSource> sources;
    for (const TensorView& tensor : source.tensors())
      if (!removed.contains(tensor.name)) sources.push_back(source_of(source, tensor));
    for (const Tensor& tensor : added) sources.push_back(source_of(tensor));
    write_safetensors(changed, std::move(sources), {{"format", "pt"}});
  }
  fs::rename(changed, file);
}

Tensor scale_of(const std::string& name, float value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {name, DType::kF32, Shape{1}, {bytes.begin(), bytes.end()}};
}

}  // namespace

TEST_CASE("conversion: without scales and FP8 weights there is nothing to convert") {
  const fs::path plain = model_fixture("llama");
  CHECK(refusal(plain, "tgi") ==
        plain.string() + ": has no KV scales and no FP8 weights" + kNothing);
  const ScratchFolder scratch;
  write_source(scratch / "fp8", "scheme: FP8", "");
  CHECK(refusal(scratch / "fp8", "compressed-tensors") ==
        (scratch / "fp8").string() +
            ": has no KV scales, and its weights are in the wanted form already" + kNothing);
  CHECK(refusal(scratch / "fp8", "modelopt") == "no error");
}

TEST_CASE("conversion: every layer has scales of K and V, or config.json ignores it") {
  const ScratchFolder scratch;
  write_source(scratch / "whole");
  fs::remove(scratch / "whole" / kManifestName);
  const auto message_without = [&](const std::set<std::string, std::less<>>& names) {
    const fs::path folder = scratch / std::to_string(names.size());
    copy_folder(scratch / "whole", folder);
    change_tensors(folder, names, {});
    return refusal(folder, "modelopt").substr(folder.string().size());
  };
  const std::string module = "model.layers.1.self_attn";
  CHECK(message_without({module + ".v_scale"}) == ": " + module + " has a k_scale and no v_scale");
  CHECK(
      message_without({module + ".k_scale", module + ".v_scale"}) ==
      ": 1 of 2 layers have KV scales; " + module +
          " has none, and quantization_config does not leave it out (ignore, or "
          "kv_cache_quantized_layers), nor --kv-cache-dtype-skip-layers, where a command has that");
  change_config(scratch / "2",
                [&](Json& config) { config["quantization_config"]["ignore"] = {module}; });
  CHECK(refusal(scratch / "2", "modelopt") == "no error");
}

TEST_CASE("conversion: scales are finite, positive and agree") {
  const ScratchFolder scratch;
  const std::string name = "model.layers.0.self_attn.k_scale";
  int count = 0;
  const auto message_with = [&](const std::string& removed, const Tensor& added) {
    const fs::path folder = scratch / std::to_string(count++);
    write_source(folder);
    change_tensors(folder, {removed}, {added});
    return refusal(folder, "tgi").substr(folder.string().size());
  };
  CHECK(message_with(name, scale_of(name, 0.0f)) ==
        ": " + name + " holds 0, expected a scale from 1.2e-38 to 5.9e33");
  CHECK(message_with(name, scale_of(name, std::numeric_limits<float>::infinity())) ==
        ": " + name + " holds inf, expected a scale from 1.2e-38 to 5.9e33");
  // Below the normal numbers; and whose product with the largest code is infinite.
  CHECK(message_with(name, scale_of(name, 1e-45f)) ==
        ": " + name + " holds 1.4013e-45, expected a scale from 1.2e-38 to 5.9e33");
  CHECK(message_with(name, scale_of(name, 3.4e38f)) ==
        ": " + name + " holds 3.4e+38, expected a scale from 1.2e-38 to 5.9e33");
  Tensor three = scale_of(name, 1.0f);
  three.shape = Shape{3};
  three.bytes.resize(12);
  CHECK(message_with(name, three) ==
        ": " + name + " is [3], expected one value or one for each of 2 KV heads");
  CHECK(contains(message_with("", scale_of("model.layers.0.self_attn.kv_scale", 7.0f)),
                 "hold different scales of the same K"));
}

TEST_CASE("conversion: a place of scales that cannot be read") {
  const ScratchFolder scratch;
  const fs::path llama = model_fixture("llama");
  const auto place = [&](const char* name) { return (scratch / name).string(); };
  CHECK(refusal(llama, "tgi", place("none")) == place("none") + ": no such file or folder");
  fs::create_directories(place("empty"));
  CHECK(contains(refusal(llama, "tgi", place("empty")), place("empty")));
  write_file(place("scales.txt"), "{}");
  CHECK(refusal(llama, "tgi", place("scales.txt")) ==
        place("scales.txt") +
            ": expected a JSON file of scales, or a folder: rank files, an overlay, a checkpoint");
  write_file(place("scales.json"), "{}");
  CHECK(refusal(llama, "tgi", place("scales.json")) ==
        place("scales.json") + ": key 'kv_cache' is missing, expected an object");
  CHECK(refusal(llama, "tgi", llama) == llama.string() + ": has no KV scales");
  write_source(place("qwen2"), "", "tensor", "qwen2");
  CHECK(refusal(llama, "tgi", place("qwen2")) ==
        place("qwen2") + ": is a 'qwen2' of 2 layers, the checkpoint is a 'llama' of 2");
  write_scales_json(place("three.json"), {{0.5f, 0.5f, 0.5f}});
  CHECK(refusal(llama, "tgi", place("three.json")) ==
        place("three.json") + ": rank 0: 3 layers, the model has 2");
}

TEST_CASE("conversion: a checkpoint that cannot be read") {
  const ScratchFolder scratch;
  const auto place = [&](const char* name) { return (scratch / name).string(); };
  CHECK(contains(refusal(place("none"), "tgi"), place("none")));
  write_source(place("source"));
  for (const char* name : {"cut", "text"}) copy_folder(place("source"), place(name));
  fs::resize_file(scratch / "cut" / kSingleFileName, 1000);
  CHECK(contains(refusal(place("cut"), "tgi"), place("cut") + "/model.safetensors: "));
  write_file(scratch / "text" / "config.json", "not JSON");
  CHECK(contains(refusal(place("text"), "tgi"), place("text") + "/config.json: "));
  change_config(place("source"), [](Json& config) { config["quantization_config"] = "fp8"; });
  CHECK(refusal(place("source"), "tgi") ==
        place("source") +
            "/config.json: expected an object with key 'quant_method', found a string");
}

TEST_CASE("conversion: a dialect that is not known") {
  const ScratchFolder scratch;
  write_source(scratch / "source");
  change_config(scratch / "source",
                [](Json& config) { config["kv_cache_torch_dtype"] = "float8_e8m0fnu"; });
  CHECK(refusal(scratch / "source", "modelopt") ==
        (scratch / "source").string() +
            "/config.json: key 'kv_cache_torch_dtype' is \"float8_e8m0fnu\", expected "
            "\"float8_e4m3fn\", \"float8_e4m3fnuz\" or \"float8_e5m2\"");
}

TEST_CASE("conversion: ranks must divide the heads that get their scales") {
  const ScratchFolder scratch;
  const std::string file = (scratch / "kv_cache_scales.json").string();
  write_scales_json(file, {{0.5f, 1.0f}, {0.25f, 1.0f}, {0.125f, 1.0f}});
  CHECK(refusal(model_fixture("llama"), "compressed-tensors", file, Strategy::kAttnHead) ==
        file + ": 3 ranks do not divide 2 KV heads");
  CHECK(refusal(model_fixture("llama"), "compressed-tensors", file) == "no error");
}

TEST_CASE("conversion: weights that are quantized in another way keep it, or are refused") {
  const ScratchFolder scratch;
  write_source(scratch / "scales");
  const std::string config = (scratch / "w4a16" / "config.json").string();
  const fs::path int4 = test::tests_folder() / "fixtures" / "quantized" / "packed_int4";
  copy_folder(int4, scratch / "w4a16");
  change_config(scratch / "w4a16",
                [](Json& json) { json["quantization_config"]["kv_cache_scheme"] = nullptr; });
  write_scales_json((scratch / "unit.json").string(), {{1.0f, 1.0f}});
  for (const char* format : {"modelopt", "quark", "fp8"})
    CHECK(contains(refusal(int4, format, scratch / "unit.json"),
                   "packed_int4: has weights of compressed-tensors (model.layers.0."));
  // Scales beside them are another matter.
  for (const std::string format : {"compressed-tensors", "tgi", "compressed-tensors+tgi"}) {
    convert({.checkpoint = scratch / "w4a16",
             .formats = {format},
             .target = scratch / format,
             .options = {.scales = scratch / "scales", .strategy = {}, .dialect = {}}});
    const ModelDir before(scratch / "w4a16"), after(scratch / format);
    for (const std::string& name : before.tensor_names())
      CHECK(std::ranges::equal(after.tensor(name).bytes, before.tensor(name).bytes));
    Json quantization = after.config().at("quantization_config");
    CHECK(quantization.at("kv_cache_scheme").is_null() == (format == "tgi"));
    quantization["kv_cache_scheme"] = nullptr;
    CHECK(sorted_keys(quantization) == sorted_keys(before.config().at("quantization_config")));
  }
  // Of other methods nothing is known, not even the names of tensors.
  change_config(scratch / "w4a16", [](Json& json) {
    json["quantization_config"] = {{"quant_method", "hqq"}};
  });
  for (const char* format : {"compressed-tensors", "tgi"})
    CHECK(refusal(scratch / "w4a16", format, scratch / "scales") ==
          config +
              ": key 'quantization_config.quant_method' is 'hqq', whose weights are not read: HQQ, "
              "packed as its kernels want it; start from the checkpoint that it was made "
              "from, in 16 bits, FP8, GPTQ, AWQ or compressed-tensors");
}

TEST_CASE("conversion: FP8 weights must be whole to be written in another form") {
  const ScratchFolder scratch;
  write_source(scratch / "source", "scheme: FP8");
  const std::string scale = "model.layers.1.mlp.up_proj.weight_scale";
  change_tensors(scratch / "source", {scale}, {});
  CHECK(refusal(scratch / "source", "modelopt") ==
        (scratch / "source").string() + ": missing: " + scale + " [1, 1] of the F8_E4M3 weight");
}

TEST_CASE("conversion: the source is never written to") {
  const ScratchFolder scratch;
  write_source(scratch / "source");
  const std::string source = (scratch / "source").string();
  const auto message = [&](const fs::path& target) {
    return message_of(
        [&] { convert({.checkpoint = scratch / "source", .formats = {"tgi"}, .target = target}); });
  };
  const std::string lies = ": lies in the source folder " + source + ", which is never written to";
  CHECK(message(source) == source + lies);
  CHECK(message(scratch / "source" / "out") == source + "/out" + lies);
  CHECK(message(scratch.path()) == scratch.path().string() + ": holds the source folder " + source +
                                       ", which an output would replace");
  CHECK_FALSE(fs::exists(scratch / "source" / "out"));
}

TEST_CASE("conversion: scales of other caches than FP8 and INT8 are no scales of those") {
  const ScratchFolder scratch;
  write_source(scratch / "source");
  const auto refusal_with = [&](const char* key, const Json& value) {
    change_config(scratch / "source", [&](Json& config) {
      config["quantization_config"]["kv_cache_scheme"][key] = value;
    });
    return refusal(scratch / "source", "modelopt");
  };
  CHECK(refusal_with("type", "int") == "no error");
  refusal_with("type", "float");
  CHECK(contains(refusal_with("num_bits", 4), "only scales of FP8 and INT8 caches are converted"));
  const auto refusal_of = [&](const char* algorithm) {
    change_config(scratch / "source", [&](Json& config) {
      config["quantization_config"] = {{"quant_method", "modelopt"},
                                       {"quant_algo", "FP8"},
                                       {"ignore", {"*"}},
                                       {"kv_cache_quant_algo", algorithm}};
    });
    return refusal(scratch / "source", "compressed-tensors");
  };
  CHECK(refusal_of("INT8") == "no error");
  CHECK(contains(refusal_of("NVFP4_AFFINE"), "only scales of FP8 and INT8 caches are converted"));
  CHECK(contains(refusal_of("NVFP4"), "no manifest of kvcal says which"));
}

TEST_CASE("conversion: FP8 weights that the text model does not run are not left without a word") {
  const ScratchFolder scratch;
  write_source(scratch / "source", "scheme: FP8");
  Tensor tower{"vision_tower.fc1.weight", DType::kF8E4M3, Shape{4, 4}, {}};
  tower.bytes.resize(16);
  change_tensors(scratch / "source", {}, {tower, scale_of("vision_tower.fc1.weight_scale", 0.5f)});
  CHECK(contains(refusal(scratch / "source", "modelopt"),
                 "vision_tower.fc1.weight is FP8 and no part of the text model"));
  // Where their form stays, so do they.
  CHECK(refusal(scratch / "source", "compressed-tensors") == "no error");
}

TEST_CASE("conversion: what changes how weights are read stays, or is refused") {
  const ScratchFolder scratch;
  write_source(scratch / "source");
  change_config(scratch / "source", [](Json& config) {
    config["quantization_config"]["sparsity_config"] = {{"format", "sparse-bitmask"}};
  });
  convert({.checkpoint = scratch / "source",
           .formats = {"compressed-tensors"},
           .target = scratch / "out"});
  const Json config = ModelDir(scratch / "out").config().at("quantization_config");
  CHECK(config.at("sparsity_config").at("format") == "sparse-bitmask");
  CHECK(contains(refusal(scratch / "source", "modelopt"), "sparsity_config"));
}

TEST_CASE("conversion: the files that a hub cache links to are not replaced") {
  const ScratchFolder scratch;
  write_source(scratch / "blobs");
  const fs::path snapshot = scratch / "snapshots" / "one";
  fs::create_directories(snapshot);
  for (const auto& entry : fs::directory_iterator(scratch / "blobs"))
    fs::create_symlink(entry.path(), snapshot / entry.path().filename());
  CHECK(contains(message_of([&] { check_target(ModelDir(snapshot), scratch / "blobs"); }),
                 "a file of the source, which an output would replace"));
}

TEST_CASE("conversion: where one layer has a scale a head, all have") {
  const ScratchFolder scratch;
  write_source(scratch / "source", "", "attn_head");
  const std::string k = "model.layers.0.self_attn.k_scale", v = "model.layers.1.self_attn.v_scale";
  change_tensors(scratch / "source", {k, v}, {scale_of(k, 0.5f), scale_of(v, 0.25f)});
  convert({.checkpoint = scratch / "source",
           .formats = {"compressed-tensors"},
           .target = scratch / "out"});
  const ModelDir output(scratch / "out");
  CHECK(output.tensor(k).shape == Shape{2, 1, 1});
  CHECK(values_of(output, k) == std::vector<float>{0.5f, 0.5f});
  CHECK(output.tensor(v).shape == Shape{2, 1, 1});
  CHECK(values_of(output, v) == std::vector<float>{0.25f, 0.25f});
}
