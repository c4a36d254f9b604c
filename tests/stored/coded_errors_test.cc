// Quantized checkpoints that contradict themselves.
#include <algorithm>
#include <cstring>

#include "checkpoint/safetensors.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::ScratchFolder;

namespace {

constexpr const char* kModule = "model.layers.0.self_attn.q_proj";

void drop_nothing(std::vector<Tensor>&) {}

/// The message of opening a fixture whose config and tensors were changed.
template <class ChangeConfig, class ChangeTensors>
std::string message(const std::string& kind, const ChangeConfig& change_config,
                    const ChangeTensors& change) {
  const fs::path from = test::tests_folder() / "fixtures" / "quantized" / kind;
  const ScratchFolder scratch;
  Json config = parse_json(read_text(from / "config.json"));
  change_config(config);
  test::write_file(scratch / "config.json", dump_json(config));
  if (fs::exists(from / "hf_quant_config.json"))
    fs::copy_file(from / "hf_quant_config.json", scratch / "hf_quant_config.json");
  const SafetensorsFile file(from / "model.safetensors");
  std::vector<Tensor> tensors;
  for (const TensorView& view : file.tensors())
    tensors.push_back(
        {std::string(view.name), view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}});
  change(tensors);
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(scratch / "model.safetensors", std::move(sources), {});
  return test::message_of([&] {
    const ModelDir model_dir(scratch.path());
    const ModelConfig read = read_model_config(model_dir);
    const CheckpointQuantization quantization = read_checkpoint_quantization(model_dir, read);
    const Weights weights(model_dir, read, &quantization);
  });
}

auto without(const std::string& end) {
  return [end](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == kModule + end; });
  };
}

/// Sets the first bytes of a tensor of the module.
auto with_bytes(const std::string& end, std::vector<uint8_t> bytes) {
  return [end, bytes](std::vector<Tensor>& tensors) {
    for (Tensor& tensor : tensors)
      if (tensor.name == kModule + end)
        std::memcpy(tensor.bytes.data(), bytes.data(), bytes.size());
  };
}

auto with_key(const std::string& pointer, const Json& value) {
  return [=](Json& config) { config["quantization_config"][Json::json_pointer(pointer)] = value; };
}

const auto kSame = [](Json&) {};

}  // namespace

TEST_CASE("FP8 with scales of blocks: names and dtypes") {
  const std::string own = std::string(kModule) + ".weight_scale_inv";
  const auto renamed = [&](std::vector<Tensor>& tensors) {
    for (Tensor& tensor : tensors)
      if (tensor.name == own) tensor.name = std::string(kModule) + ".weight_scale";
  };
  CHECK(message("fp8_e8m0", kSame, renamed) == "no error");
  const auto doubled = [&](std::vector<Tensor>& tensors) {
    Tensor copy = *std::ranges::find(tensors, own, &Tensor::name);
    copy.name = std::string(kModule) + ".weight_scale";
    tensors.push_back(copy);
  };
  CHECK(contains(message("fp8_e8m0", kSame, doubled),
                 "contradictory: " + own + " and " + kModule +
                     ".weight_scale are the same scale, expected one of them"));
  CHECK(contains(message("fp8_e8m0", kSame, with_bytes(".weight_scale_inv", {0xff})),
                 own + " holds nan, expected a scale"));
  // Bytes are exponents only where the config says so.
  CHECK(contains(message("fp8_e8m0_bytes", with_key("/scale_fmt", "float"), drop_nothing),
                 own + " is U8, expected F32, F16, BF16 or F8_E8M0"));
}

TEST_CASE("a static input's scale has either name, and one") {
  const auto with = [](const char* end) {
    return [end](std::vector<Tensor>& tensors) {
      Tensor copy =
          *std::ranges::find(tensors, std::string(kModule) + ".activation_scale", &Tensor::name);
      copy.name = std::string(kModule) + end;
      tensors.push_back(copy);
    };
  };
  CHECK(contains(message("fp8_scalar_names", kSame, with(".input_scale")),
                 "are the same scale, expected one of them"));
  CHECK(contains(message("fp8_scalar_names", kSame, without(".activation_scale")),
                 std::string("missing: ") + kModule + ".input_scale"));
}

TEST_CASE("quantized weights: an unchanged copy has no error") {
  for (const char* kind : {"packed_int4_zeros", "gptq_4", "awq", "bnb_nf4", "gpt_oss"})
    CHECK(message(kind, kSame, drop_nothing) == "no error");
}

TEST_CASE("quantized weights: missing tensors are named") {
  CHECK(contains(message("packed_int4_zeros", kSame, without(".weight_zero_point")),
                 "missing: model.layers.0.self_attn.q_proj.weight_zero_point [8, 2]"));
  CHECK(contains(message("gptq_4", kSame, without(".qzeros")),
                 "missing: model.layers.0.self_attn.q_proj.qzeros [2, 8]"));
  CHECK(contains(message("gptq_4", kSame, without(".g_idx")),
                 "missing: model.layers.0.self_attn.q_proj.g_idx [64]"));
  CHECK(contains(message("awq", with_key("/zero_point", false), without(".qzeros")),
                 "missing: model.layers.0.self_attn.q_proj.qzeros [2, 8]"));
  CHECK(contains(message("nvfp4", kSame, without(".weight_global_scale")),
                 "missing: model.layers.0.self_attn.q_proj.weight_global_scale"));
  CHECK(contains(message("packed_int4", kSame, without(".weight_packed")),
                 "missing: model.layers.0.self_attn.q_proj.weight [64, 64]"));
}

TEST_CASE("quantized weights: sizes that do not fit the config are told") {
  CHECK(contains(message("gptq_4", with_key("/group_size", 16), drop_nothing),
                 "misshapen: model.layers.0.self_attn.q_proj.scales is [2, 64], expected [4, 64]"));
  CHECK(contains(message("awq", with_key("/group_size", 64), drop_nothing),
                 "q_proj.scales is [2, 64], expected [1, 64]"));
  CHECK(contains(message("packed_int4", with_key("/config_groups/group_0/weights/group_size", 64),
                         drop_nothing),
                 "q_proj.weight_scale is [64, 2], expected [64, 1]"));
  CHECK(contains(message("packed_int4", kSame, with_bytes(".weight_shape", {65})),
                 "q_proj.weight_shape says [65, 64], and"));
}

TEST_CASE("quantized weights: scales of zero or NaN, and groups that are not there, are told") {
  CHECK(contains(message("packed_int4", kSame, with_bytes(".weight_scale", {0, 0})),
                 "unreadable: model.layers.0.self_attn.q_proj.weight_scale holds 0"));
  CHECK(contains(message("gptq_4", kSame, with_bytes(".scales", {0, 0x7e})),
                 "q_proj.scales holds nan"));
  CHECK(contains(message("mxfp4", kSame, with_bytes(".weight_scale", {255})),
                 "q_proj.weight_scale holds nan"));
  CHECK(contains(message("gptq_4", kSame, with_bytes(".g_idx", {7})),
                 "q_proj.g_idx holds 7, expected groups 0 to 1"));
}

TEST_CASE("quantized weights: values of keys that are not read are refused by name") {
  CHECK(contains(message("gptq_4", with_key("/bits", 5), drop_nothing), "key 'bits' is 5"));
  CHECK(contains(message("gptq_4", with_key("/checkpoint_format", "marlin"), drop_nothing),
                 "key 'checkpoint_format' is 'marlin'"));
  CHECK(contains(message("gptq_4", with_key("/group_sizes", 3), drop_nothing),
                 "unknown key 'group_sizes' (did you mean 'group_size'?)"));
  CHECK(contains(message("awq", with_key("/version", "exllama"), drop_nothing),
                 "key 'version' is 'exllama'"));
  CHECK(contains(message("packed_int4", with_key("/config_groups/group_0/format", "int-quantized"),
                         drop_nothing),
                 "key 'format' is 'int-quantized', and weights are of type int, 4 bits"));
}

TEST_CASE("Quark: kinds and places of integers that are not read are refused by name") {
  const auto weight = [](const std::string& kind, const char* key, const Json& value) {
    return message(kind, with_key(std::string("/global_quant_config/weight/") + key, value),
                   drop_nothing);
  };
  CHECK(contains(weight("quark_int8", "qscheme", "per_group"),
                 "key 'qscheme' is 'per_group', expected per_tensor or per_channel for int8"));
  CHECK(contains(weight("quark_int8", "ch_axis", 1), "key 'ch_axis' is 1, expected 0 for int8"));
  CHECK(contains(weight("quark_int4", "qscheme", "per_channel"),
                 "key 'qscheme' is 'per_channel', expected per_group for int4 and uint4"));
  CHECK(contains(weight("quark_int4", "ch_axis", 0), "key 'ch_axis' is 0, expected 1 or -1"));
  CHECK(contains(weight("quark_int4", "group_size", 16),
                 "q_proj.weight_scale is [2, 64], expected [4, 64]"));
  CHECK(contains(weight("quark_mxfp6", "scale_format", "float32"),
                 "key 'dtype' is 'fp6_e2m3', which is not read; expected fp8_e4m3, int8"));
  CHECK(contains(message("quark_uint4", with_key("/export/pack_method", "order"), drop_nothing),
                 "key 'export.pack_method' is \"order\", which is not read; expected reorder"));
  // Others have no order.
  CHECK(message("quark_mxfp6", with_key("/export/pack_method", "order"), drop_nothing) ==
        "no error");
  CHECK(contains(message("quark_uint4", kSame, without(".weight_zero_point")),
                 std::string("missing: ") + kModule + ".weight_zero_point [2, 8]"));
  // Symmetric weights need no zero points.
  CHECK(message("quark_int8", kSame, without(".weight_zero_point")) == "no error");
  CHECK(contains(message("quark_int8", kSame, without(".weight_scale")),
                 "q_proj.weight is I8, and global_quant_config describes other codes"));
}

TEST_CASE("MXFP8 and INT8 by their own methods: what is not read is named") {
  CHECK(contains(message("mxfp8_method", with_key("/weight_block_size", {128, 128}), drop_nothing),
                 "key 'weight_block_size' is [128,128], expected [1,32] for MXFP8"));
  CHECK(contains(message("mxfp8_method", with_key("/fmt", "e5m2"), drop_nothing),
                 "key 'fmt' is 'e5m2', whose weights are not read"));
  CHECK(message("mxfp8_method", with_key("/weight_block_size", nullptr), drop_nothing) ==
        "no error");
  CHECK(contains(message("mxfp8_method", kSame, without(".weight_scale_inv")),
                 std::string("missing: ") + kModule + ".weight_scale_inv [64, 2]"));
  CHECK(contains(message("mxfp8_method", kSame, with_bytes(".weight_scale_inv", {0xff})),
                 "q_proj.weight_scale_inv holds nan"));
  CHECK(contains(message("w8a8_int8", with_key("/ignore", Json::array({"re:(up"})), drop_nothing),
                 "pattern 're:(up' is no regular expression"));
  CHECK(contains(
      message("w8a8_int8", with_key("/ignore", Json::array({"re:.*q_proj$"})), drop_nothing),
      "q_proj.weight is I8, and the config does not say that the module is quantized"));
}

TEST_CASE("compressed-tensors: layers with numbers of experts of their own are refused") {
  const auto with = [](const Json& value) {
    return message("packed_int4", with_key("/moe_sparsity_config", value), drop_nothing);
  };
  CHECK(with({{"method", "prune"}, {"num_experts", {nullptr, 64, 64}}}) == "no error");
  CHECK(with(nullptr) == "no error");
  CHECK(contains(with({{"method", "prune"}, {"num_experts", {nullptr, 64, 61}}}),
                 "moe_sparsity_config: key 'num_experts' gives layers from 61 to 64 experts"));
  CHECK(contains(with({{"method", "novice"}, {"num_experts", {64, 64}}}),
                 "key 'method' is 'novice', whose constants in place of experts are not run"));
  CHECK(contains(with({{"method", "merge"}, {"num_experts", {64, 64}}}),
                 "key 'method' is 'merge', which is not known; expected prune"));
  CHECK(contains(with({{"method", "prune"}, {"num_experts", {"64"}}}),
                 "key 'num_experts' holds \"64\", expected integers or null"));
  CHECK(contains(with({{"method", "prune"}}), "key 'num_experts' is missing"));
}

TEST_CASE("quantized weights: configs that disagree are told with both places") {
  const auto with_other = [](Json& config) {
    config["text_config"] = {{"quantization_config", {{"quant_method", "awq"}}}};
    config["compression_config"] = {{"quant_method", "gptq"}};
  };
  const std::string text = message("packed_int4", with_other, drop_nothing);
  CHECK(contains(text, "config.json: compression_config: differs from"));
  CHECK(contains(text, "config.json: quantization_config, and engines differ"));
  const auto with_fp8 = [](Json& config) {
    config["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
  };
  CHECK(contains(message("modelopt_nvfp4", with_fp8, drop_nothing),
                 "hf_quant_config.json: key 'quantization.quant_algo' is \"NVFP4\", and"));
}
