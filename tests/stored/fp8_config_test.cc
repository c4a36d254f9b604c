#include <cstring>

#include "forward/support/fp8_checkpoint.h"

using namespace kvcal;
using test::Checkpoint;
using test::contains;
using test::copy_changed;
using test::error_of;
using test::Expected;
using test::fp8_fixture;
using test::kSameConfig;
using test::kSameTensor;
using test::ScratchFolder;

namespace {

/// The error of static_kv with one key of its quantization_config changed.
std::string error_with(const Json::json_pointer& key, const Json& value) {
  return error_of(
      "static_kv", [&](Json& config) { config["quantization_config"][key] = value; }, kSameTensor);
}

std::string error_with_config(const Json& quantization) {
  return error_of(
      "static_kv", [&](Json& config) { config["quantization_config"] = quantization; },
      kSameTensor);
}

/// A copy of a fixture as it is opened, with another quantization_config and tensors.
template <class ChangeConfig, class ChangeTensor>
CheckpointQuantization quantization_of(const std::string& kind, const ChangeConfig& change_config,
                                       const ChangeTensor& change) {
  const ScratchFolder folder;
  copy_changed(kind, folder.path(), change_config, change);
  const ModelDir model_dir(folder.path());
  auto read = read_checkpoint_quantization(model_dir, read_model_config(model_dir));
  read.linears.clear();  // they borrow from the folder
  return read;
}

const auto kFp8Static = [](Json& config) {
  config["quantization_config"] = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
};

/// A tensor of the fixture as zeros of F16.
void make_f16(Tensor& tensor) {
  tensor.dtype = DType::kF16;
  tensor.bytes.assign(2 * tensor.bytes.size(), std::byte{0});
}

}  // namespace

TEST_CASE("keys of compressed-tensors that change the result are refused by name") {
  using namespace nlohmann::literals;
  CHECK(contains(error_with("/transform_config"_json_pointer,
                            {{"config_groups", {{"R1", {{"type", "hadamard"}}}}}}),
                 "quantization_config: key 'transform_config' asks for transforms"));
  CHECK(contains(error_with("/sparsity_config"_json_pointer, {{"format", "sparse-bitmask"}}),
                 "key 'sparsity_config.format' is 'sparse-bitmask'"));
  CHECK(contains(error_with("/format"_json_pointer, "marlin-24"),
                 "key 'format' is 'marlin-24', which is not read; expected float-quantized"));
  CHECK(
      contains(error_with("/config_groups/group_0/format"_json_pointer, "pack-quantized"),
               "config_groups.group_0: weights: key 'format' is 'pack-quantized', and weights are "
               "of type float, 8 bits"));
  CHECK(contains(error_with("/format"_json_pointer, "float_quantised"),
                 "did you mean 'float-quantized'?"));
  CHECK(contains(error_with("/ignores"_json_pointer, Json::array({"lm_head"})),
                 "unknown key 'ignores' (did you mean 'ignore'?)"));
  CHECK(contains(error_with("/config_groups/group_0/target"_json_pointer, Json::array({"Linear"})),
                 "group_0: unknown key 'target' (did you mean 'targets'?)"));
  for (const char* side : {"weights", "input_activations"})
    CHECK(contains(
        error_with(Json::json_pointer(std::string("/config_groups/group_0/") + side + "/strategi"),
                   "tensor"),
        std::string(side) + ": unknown key 'strategi' (did you mean 'strategy'?)"));
}

TEST_CASE("AutoRound's key of quantized queries is read, not others' values in it") {
  using namespace nlohmann::literals;
  const Json args = {
      {"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}};
  const auto with = [&](const Json& attention) {
    return error_with("/attention_input_activations"_json_pointer, attention);
  };
  CHECK(with({{"targets", {"LlamaAttention"}}, {"input_activations", args}}) == "no error");
  CHECK(contains(with({{"targets", {"LlamaAttention"}}}),
                 "attention_input_activations: key 'input_activations' is missing"));
  Json dynamic = args;
  dynamic["dynamic"] = true;
  CHECK(contains(with({{"input_activations", dynamic}}), "queries with dynamic scales"));
}

TEST_CASE("keys that published configs have are read or without effect") {
  using namespace nlohmann::literals;
  CHECK(error_with("/transform_config"_json_pointer, {{"config_groups", Json::object()}}) ==
        "no error");
  CHECK(error_with("/transform_config"_json_pointer, nullptr) == "no error");
  // What compressed-tensors 0.3 to 0.9 wrote.
  CHECK(error_with("/sparsity_config"_json_pointer, {{"format", "dense"},
                                                     {"global_sparsity", 0.14},
                                                     {"ignore", Json::array()},
                                                     {"registry_requires_subclass", false},
                                                     {"sparsity_structure", "unstructured"},
                                                     {"targets", Json::array()}}) == "no error");
  CHECK(error_with("/run_compressed"_json_pointer, true) == "no error");
  CHECK(error_with("/provider"_json_pointer, "auto-round") == "no error");
  const Json of_fp8 = {{"quant_method", "fp8"},
                       {"activation_scheme", "static"},
                       {"ignored_layers", {"lm_head"}},
                       {"kv_cache_scheme", "static"},
                       {"fmt", "e4m3"},
                       {"scale_fmt", "float"},
                       {"dequantize", false},
                       {"weight_block_size", nullptr},
                       {"linear_class", "of an engine that will come"}};
  CHECK(error_with_config(of_fp8) == "no error");
  Json huge_blocks = of_fp8;
  huge_blocks["activation_scheme"] = "dynamic";
  huge_blocks["weight_block_size"] = {INT64_MAX, 128};
  CHECK(contains(error_with_config(huge_blocks), "weight_block_size"));
  CHECK(contains(error_with_config(huge_blocks), "expected two sizes"));
  Json misspelt = of_fp8;
  misspelt["ignored_layer"] = Json::array({"lm_head"});
  CHECK(contains(error_with_config(misspelt),
                 "unknown key 'ignored_layer' (did you mean 'ignored_layers'?)"));
  const Json of_modelopt = {
      {"quant_method", "modelopt"},
      {"quant_algo", "FP8"},
      {"ignore", {"lm_head"}},
      {"config_groups", Json::object()},
      {"producer", {{"name", "modelopt"}, {"version", "0.47.0"}}},
      {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}}};
  CHECK(error_with_config(of_modelopt) == "no error");
}

TEST_CASE("every word for E4M3FN is read, and no other format") {
  const auto error_with_format = [](const char* word) {
    return error_with_config(
        {{"quant_method", "fp8"}, {"activation_scheme", "static"}, {"fmt", word}});
  };
  for (const char* word : {"e4m3", "E4M3", "e4m3fn", "float8_e4m3fn", "float8_e4m3", "fp8_e4m3",
                           "fp8_e4m3fn", "torch.float8_e4m3fn", "F8_E4M3"})
    CHECK(error_with_format(word) == "no error");
  for (const char* word : {"e5m2", "float8_e5m2", "e4m3fnuz", "float8_e4m3fnuz", "fp8", "int8", ""})
    CHECK(contains(error_with_format(word), std::string("key 'fmt' is '") + word +
                                                "', whose weights are not read; expected e4m3"));
}

TEST_CASE("a quant_method that is not read is named with those that are") {
  for (const auto& [method, hint] :
       {std::pair<const char*, const char*>{"compressed_tensors",
                                            " (did you mean 'compressed-tensors'?)"},
        {"int4_woq", ""}})
    CHECK(contains(
        error_with_config({{"quant_method", method}}),
        std::string("quantization_config: key 'quant_method' is '") + method +
            "', which is not read" + hint +
            "; expected compressed-tensors, fp8, modelopt, quark, ascend, gptq, awq, auto-round, "
            "fbgemm_fp8, mxfp4, mxfp8, w8a8_int8 or bitsandbytes"));
  CHECK(contains(error_with_config({{"bits", 8}}), "key 'quant_method' is missing"));
}

TEST_CASE("a quant_method that stays out is explained, and no near word is suggested") {
  for (const char* method : {"exl2", "aqlm", "vptq", "quanto", "gemma", "nvfp4", "marlin"}) {
    const std::string error = error_with_config({{"quant_method", method}});
    CHECK(contains(error, std::string("key 'quant_method' is '") + method +
                              "', whose weights are not read: "));
    CHECK(contains(error, "; start from the checkpoint that it was made from"));
  }
  for (const char* method : {"hqq", "torchao"})
    CHECK(contains(error_with_config({{"quant_method", method}}), "; start from the checkpoint"));
  for (const char* method : {"gpqt", "aqw", "fp4", "auto-awq"}) {
    const std::string error = error_with_config({{"quant_method", method}});
    CHECK(contains(error, "which is not read; expected compressed-tensors"));
  }
  CHECK(
      contains(error_with_config({{"quant_method", "auto_round"}}), "did you mean 'auto-round'?"));
  const Json of_mlx = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  CHECK(contains(error_with_config(of_mlx), "as MLX writes them"));
  CHECK(contains(error_of(
                     "static_kv",
                     [&](Json& config) {
                       config.erase("quantization_config");
                       config["quantization"] = of_mlx;
                     },
                     kSameTensor),
                 "config.json: quantization: has bits, group_size and no quant_method"));
  using namespace nlohmann::literals;
  const std::string nvfp8 = error_with("/format"_json_pointer, "nvfp8-pack-quantized");
  CHECK(contains(nvfp8, "key 'format' is 'nvfp8-pack-quantized', which is not read; expected"));
}

namespace {

/// What Quark says of a tensor in FP8.
Json quark_tensor(const char* qscheme, bool is_dynamic) {
  return {{"dtype", "fp8_e4m3"}, {"qscheme", qscheme}, {"is_dynamic", is_dynamic}};
}

Json quark_config(const Json& weight, const Json& inputs) {
  return {{"quant_method", "quark"},
          {"exclude", {"lm_head"}},
          {"export", {{"kv_cache_group", Json::array()}}},
          {"global_quant_config", {{"weight", weight}, {"input_tensors", inputs}}}};
}

}  // namespace

TEST_CASE("quark: FP8 weights are those of the same checkpoint in compressed-tensors' words") {
  const ScratchFolder folder;
  copy_changed(
      "static_kv", folder.path(),
      [](Json& config) {
        config["quantization_config"] =
            quark_config(quark_tensor("per_tensor", false), quark_tensor("per_tensor", false));
      },
      kSameTensor);
  test::check_same_logits(folder.path(), "static_kv");
}

TEST_CASE("quark: what is not read is named") {
  const auto error = [](const Json& weight, const Json& inputs) {
    return error_with_config(quark_config(weight, inputs));
  };
  const Json tensor = quark_tensor("per_tensor", false);
  CHECK(error(tensor, tensor) == "no error");
  CHECK(contains(error({{"dtype", "int3"}, {"qscheme", "per_group"}}, nullptr),
                 "global_quant_config.weight: key 'dtype' is 'int3', which is not read"));
  CHECK(contains(error(quark_tensor("per_tensor", true), tensor),
                 "global_quant_config.weight: weights with dynamic scales"));
  CHECK(contains(error(quark_tensor("per_group", false), tensor),
                 "key 'qscheme' is 'per_group', expected per_tensor, per_channel or per_block"));
  CHECK(contains(error(tensor, quark_tensor("per_channel", false)),
                 "global_quant_config.input_tensors: static inputs with qscheme 'per_channel'"));
  Json config = quark_config(tensor, tensor);
  config["layer_quant_config"]["*down_proj"] = {{"weight", nullptr}, {"input_tensors", tensor}};
  CHECK(contains(error_with_config(config),
                 "down_proj.weight is F8_E4M3, and the config does not say that the module is "
                 "quantized"));
}

TEST_CASE("blocks as a text are those of a list") {
  const ScratchFolder folder;
  copy_changed(
      "block", folder.path(),
      [](Json& config) {
        config["quantization_config"]["config_groups"]["group_0"]["weights"]["block_structure"] =
            "32x32";
      },
      kSameTensor);
  test::check_same_logits(folder.path(), "block");
  const auto with = [](const char* text) {
    return error_of(
        "block",
        [&](Json& config) {
          config["quantization_config"]["config_groups"]["group_0"]["weights"]["block_structure"] =
              text;
        },
        kSameTensor);
  };
  for (const char* text : {"32", "32x", "32x32x32", "32 x 32", "-1x32"})
    CHECK(contains(with(text),
                   "key 'block_structure' is \"" + std::string(text) + "\", expected two sizes"));
}

TEST_CASE("weights in 16 bits that an fp8 config does not list") {
  const auto some = quantization_of("static_kv", kFp8Static, [](Tensor& tensor) {
    if (tensor.name.ends_with("o_proj.weight")) make_f16(tensor);
    return true;
  });
  CHECK(some.problems.empty());
  REQUIRE(some.warnings.size() == 1);
  CHECK(contains(some.warnings[0],
                 "quant_method fp8 says that weights are FP8 and does not list "
                 "model.layers.0.self_attn.o_proj.weight, which is F16 (and 1 more)"));
  // Whole names, and words of names as MiniMax and Ministral list them.
  for (const Json& list :
       {Json({"model.layers.0.self_attn.o_proj", "model.layers.1.self_attn.o_proj"}),
        Json({"o_proj"}), Json({"model.layers"})})
    for (const char* key : {"ignored_layers", "modules_to_not_convert"}) {
      INFO(key << " " << list.dump());
      const auto listed = quantization_of(
          "static_kv",
          [&](Json& config) {
            kFp8Static(config);
            config["quantization_config"][key] = list;
          },
          [&](Tensor& tensor) {
            const bool is_weight = tensor.dtype == DType::kF8E4M3;
            if (list.size() == 1 && list[0] == "model.layers" && is_weight) make_f16(tensor);
            if (tensor.name.ends_with("o_proj.weight") && tensor.dtype != DType::kF16)
              make_f16(tensor);
            return true;
          });
      CHECK(listed.warnings.empty());
      CHECK(listed.problems.empty());
    }
  const auto none = quantization_of("static_kv", kFp8Static, [](Tensor& tensor) {
    if (tensor.dtype == DType::kF8E4M3) make_f16(tensor);
    return true;
  });
  REQUIRE(none.problems.size() == 1);
  CHECK(
      contains(none.problems[0], "not quantized: model.layers.0.self_attn.qkv_proj.weight is F16"));
  CHECK(contains(none.problems[0], "(and 7 more), quant_method fp8 says FP8, and no weight is"));
}

TEST_CASE("a published fp8 config that lists nothing is quiet") {
  const ModelDir model_dir(test::model_fixture("deepseek_v3_fp8"));
  const auto read = read_checkpoint_quantization(model_dir, read_model_config(model_dir));
  CHECK(!read.linears.empty());
  CHECK(read.problems.empty());
  CHECK(read.warnings.empty());
}

TEST_CASE("a code that is NaN is told with its tensor") {
  for (const char* kind : {"static_kv", "block"})
    for (const auto code : {std::byte{0x7f}, std::byte{0xff}}) {
      INFO(kind);
      const ScratchFolder folder;
      copy_changed(kind, folder.path(), kSameConfig, [&](Tensor& tensor) {
        if (tensor.name == "model.layers.1.mlp.down_proj.weight") tensor.bytes[77] = code;
        return true;
      });
      const Checkpoint checkpoint(folder.path());
      CHECK(contains(test::message_of([&] {
                       checkpoint.logits(Expected(kind).ids, "cpu", ComputeType::kFloat32, 64);
                     }),
                     "model.layers.1.mlp.down_proj.weight holds NaN (codes 7f or ff)"));
    }
}

TEST_CASE("a tied lm_head's input is quantized as its own targets say") {
  // The same model with the embedding's weight and scale as the head's own.
  const SafetensorsFile source(fp8_fixture("mixed") / "model.safetensors");
  const ScratchFolder tied, untied;
  copy_changed(
      "mixed", tied.path(), [](Json& config) { config["tie_word_embeddings"] = true; },
      [](Tensor& tensor) { return !tensor.name.starts_with("lm_head"); });
  copy_changed("mixed", untied.path(), kSameConfig, [&](Tensor& tensor) {
    constexpr std::string_view kHead = "lm_head";
    if (!tensor.name.starts_with(kHead)) return true;
    const TensorView* twin = source.find("model.embed_tokens" + tensor.name.substr(kHead.size()));
    REQUIRE(twin);
    tensor.bytes.assign(twin->bytes.begin(), twin->bytes.end());
    return true;
  });
  const Expected expected("mixed");
  const auto logits = [&](const fs::path& folder) {
    return Checkpoint(folder).logits(expected.ids, "cpu", ComputeType::kFloat32, 64);
  };
  CHECK(Checkpoint(tied.path()).quantization.linears.at("lm_head").input ==
        InputQuantization::kDynamicToken);
  CHECK(logits(tied.path()) == logits(untied.path()));
}
