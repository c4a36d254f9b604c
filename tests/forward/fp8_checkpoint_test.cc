#include <cmath>
#include <cstring>

#include "forward/support/fp8_checkpoint.h"
#include "quant/half.h"

namespace kvcal {
namespace {

using test::check_same_logits;
using test::Checkpoint;
using test::contains;
using test::copy_changed;
using test::error_of;
using test::Expected;
using test::fp8_fixture;
using test::kSameConfig;
using test::kSameTensor;
using test::mean_kl;
using test::ScratchFolder;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

void check_kind(const std::string& kind) {
  INFO(kind);
  const Expected expected(kind);
  const Checkpoint checkpoint(fp8_fixture(kind));
  for (const std::string& backend : test::backend_names()) {
    INFO(backend);
    const auto logits = checkpoint.logits(expected.ids, backend, ComputeType::kFloat32, 64);
    const double difference = largest_difference(logits, expected.logits);
    const double kl = mean_kl(logits, expected.logits, expected.vocab());
    INFO("largest difference " << difference << ", mean KL " << kl << ", quantization moves "
                               << expected.moved());
    CHECK(kl <= 1e-4);
    CHECK(difference <= 0.02 * expected.moved());
    // Token by token (recorded, where the backend does that) it is the same model.
    const auto stepped = checkpoint.logits(expected.ids, backend, ComputeType::kFloat32, 1);
    CHECK(mean_kl(stepped, expected.logits, expected.vocab()) <= 1e-4);
  }
}

}  // namespace

TEST_CASE("FP8 checkpoints of every kind give transformers' logits") {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fp8_fixture(""))) {
    check_kind(entry.path().filename().string());
    ++count;
  }
  CHECK(count == 7);
}

TEST_CASE("FP8 checkpoints in bfloat16 stay near") {
  for (const char* kind : {"static_kv", "token_kv_heads", "block", "mixed"}) {
    INFO(kind);
    const Expected expected(kind);
    const Checkpoint checkpoint(fp8_fixture(kind));
    size_t count = 0;
    for (const std::string& backend : test::backend_names()) {
      // Processors without AVX-512 have no bfloat16; the reference always has.
      if (!test::make_backend(backend)->supports(ComputeType::kBFloat16)) continue;
      INFO(backend);
      const auto logits = checkpoint.logits(expected.ids, backend, ComputeType::kBFloat16, 64);
      CHECK(mean_kl(logits, expected.logits, expected.vocab()) <= 0.05);
      ++count;
    }
    CHECK(count > 0);
  }
}

TEST_CASE("AutoFP8's form is compressed-tensors' by other names") {
  const ScratchFolder folder;
  copy_changed(
      "static_kv", folder.path(),
      [](Json& config) {
        config["quantization_config"] = {{"quant_method", "fp8"},
                                         {"activation_scheme", "static"},
                                         {"ignored_layers", {"lm_head"}},
                                         {"kv_cache_scheme", "static"}};
      },
      [](Tensor& tensor) {
        if (tensor.name.ends_with("_scale")) tensor.shape = {};
        return true;
      });
  check_same_logits(folder.path(), "static_kv");
}

TEST_CASE("ModelOpt's form is compressed-tensors' by other names") {
  const ScratchFolder folder;
  copy_changed(
      "static_kv", folder.path(), [](Json& config) { config.erase("quantization_config"); },
      [](Tensor& tensor) {
        for (const char* side : {"k", "v"}) {
          const std::string end = std::string(".self_attn.") + side + "_scale";
          if (tensor.name.ends_with(end))
            tensor.name = tensor.name.substr(0, tensor.name.size() - end.size()) + ".self_attn." +
                          side + "_proj." + side + "_scale";
        }
        if (tensor.name.ends_with("_scale")) tensor.shape = {};
        return true;
      });
  test::write_file(folder / "hf_quant_config.json",
                   R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8",
                       "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_*"]}})");
  check_same_logits(folder.path(), "static_kv");
}

TEST_CASE("ModelOpt's form with a scale a row is compressed-tensors' by other names") {
  const ScratchFolder folder;
  copy_changed(
      "token_kv_heads", folder.path(),
      [](Json& config) {
        config["quantization_config"] = {{"quant_method", "modelopt"},
                                         {"quant_algo", "fp8_per_channel_per_token"},
                                         {"ignore", {"lm_head"}}};
      },
      [](Tensor& tensor) {
        if (tensor.name.ends_with("weight_scale")) tensor.shape = {tensor.shape[0]};
        return true;
      });
  check_same_logits(folder.path(), "token_kv_heads");
}

TEST_CASE("an FP8 embedding that is tied is lm_head, too") {
  const ScratchFolder tied, untied;
  const auto without_lm_head = [](Json& config) {
    for (auto& [name, group] : config["quantization_config"]["config_groups"].items())
      std::erase(group["targets"].get_ref<Json::array_t&>(), Json("lm_head"));
  };
  copy_changed(
      "mixed", tied.path(),
      [&](Json& config) {
        without_lm_head(config);
        config["tie_word_embeddings"] = true;
      },
      [](Tensor& tensor) { return !tensor.name.starts_with("lm_head"); });
  const SafetensorsFile source(fp8_fixture("mixed") / "model.safetensors");
  copy_changed(
      "mixed", untied.path(),
      [&](Json& config) {
        without_lm_head(config);
        for (auto& [name, group] : config["quantization_config"]["config_groups"].items())
          if (group["targets"] == Json({"Embedding"})) group["targets"].push_back("lm_head");
      },
      [&](Tensor& tensor) {
        constexpr std::string_view kHead = "lm_head";
        if (!tensor.name.starts_with(kHead)) return true;
        if (tensor.name.ends_with("input_scale")) return false;
        const TensorView* twin =
            source.find("model.embed_tokens" + tensor.name.substr(kHead.size()));
        REQUIRE(twin);
        tensor.bytes.assign(twin->bytes.begin(), twin->bytes.end());
        return true;
      });
  const Expected expected("mixed");
  const auto logits = [&](const fs::path& folder) {
    return Checkpoint(folder).logits(expected.ids, "cpu", ComputeType::kFloat32, 64);
  };
  CHECK(logits(tied.path()) == logits(untied.path()));
  CHECK(logits(tied.path()) != expected.logits);
}

TEST_CASE("a block-scaled fp8 checkpoint's inputs are quantized by groups") {
  const ScratchFolder folder;
  copy_changed(
      "block", folder.path(),
      [](Json& config) {
        // One size says both: the fixture's groups of 16, so its blocks of 32 are cut into four.
        config["quantization_config"] = {{"quant_method", "fp8"},
                                         {"activation_scheme", "dynamic"},
                                         {"weight_block_size", {16, 16}}};
      },
      [](Tensor& tensor) {
        constexpr std::string_view kScale = ".weight_scale";
        if (!tensor.name.ends_with(kScale)) return true;
        tensor.name += "_inv";
        const bool is_wide = tensor.name.find("down_proj") != std::string::npos;
        const bool is_high = tensor.name.find("gate_proj") != std::string::npos ||
                             tensor.name.find("up_proj") != std::string::npos;
        const bool is_low = tensor.name.find("k_proj") != std::string::npos ||
                            tensor.name.find("v_proj") != std::string::npos;
        const int64_t rows = is_high ? 3 : is_low ? 1 : 2, columns = is_wide ? 3 : 2;
        std::vector<std::byte> bytes;
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t column = 0; column < columns; ++column) {
            const auto at = static_cast<size_t>(row / 2 * tensor.shape[1] + column / 2) * 2;
            bytes.insert(bytes.end(), tensor.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         tensor.bytes.begin() + static_cast<std::ptrdiff_t>(at + 2));
          }
        tensor.bytes = std::move(bytes);
        tensor.shape = {rows, columns};
        return true;
      });
  check_same_logits(folder.path(), "block");
}

TEST_CASE("contradictions of tensors and config are told together") {
  const std::string message = error_of("static_kv", kSameConfig, [](Tensor& tensor) {
    if (tensor.name == "model.layers.0.self_attn.o_proj.weight_scale") tensor.shape = {1, 1, 1};
    if (tensor.name == "model.layers.1.self_attn.o_proj.weight_scale") {
      tensor.shape = {2};
      tensor.bytes.resize(4, tensor.bytes[0]);
    }
    if (tensor.name == "model.layers.1.mlp.down_proj.weight") {
      tensor.dtype = DType::kF16;
      tensor.bytes.resize(2 * tensor.bytes.size());
    }
    return tensor.name != "model.layers.0.mlp.down_proj.weight_scale" &&
           tensor.name != "model.layers.0.mlp.gate_up_proj.input_scale" &&
           tensor.name != "model.norm.weight";
  });
  CHECK(contains(message, "missing: model.norm.weight [32]"));
  CHECK(contains(message, "missing: model.layers.0.mlp.down_proj.weight_scale [1, 1]"));
  CHECK(contains(message,
                 "missing: model.layers.0.mlp.gate_up_proj.input_scale [1]; config group "
                 "'group_0' says that inputs are static"));
  CHECK(contains(message, "misshapen: model.layers.1.self_attn.o_proj.weight_scale is [2]"));
  CHECK(contains(message,
                 "not quantized: model.layers.1.mlp.down_proj.weight is F16, config "
                 "group 'group_0' says FP8"));
  CHECK(!contains(message, "model.layers.0.self_attn.o_proj"));
}

TEST_CASE("FP8 weights that no config names are refused") {
  const auto without = [](Json& config) { config.erase("quantization_config"); };
  CHECK(contains(error_of("weights_only", without, kSameTensor),
                 "unreadable: model.layers.0.self_attn.q_proj.weight is F8_E4M3, and the config "
                 "does not say that the module is quantized"));
  const auto ignoring = [](Json& config) {
    config["quantization_config"]["ignore"] = {"re:.*v_proj", "lm_head"};
  };
  const std::string message = error_of("weights_only", ignoring, kSameTensor);
  CHECK(contains(message, "model.layers.0.self_attn.v_proj.weight is F8_E4M3"));
  CHECK(contains(message, "unexpected: model.layers.0.self_attn.v_proj.weight_scale"));
  CHECK(!contains(message, "q_proj"));
}

TEST_CASE("scales that are no scales are refused") {
  const auto with_value = [](float value) {
    return error_of("weights_only", kSameConfig, [value](Tensor& tensor) {
      const uint16_t bits = to_f16(value).bits;
      if (tensor.name == "model.layers.0.self_attn.q_proj.weight_scale")
        std::memcpy(tensor.bytes.data(), &bits, sizeof bits);
      return true;
    });
  };
  for (const float value : {0.0f, -1.0f, std::nanf("")})
    CHECK(contains(with_value(value), "model.layers.0.self_attn.q_proj.weight_scale holds "));
  CHECK(with_value(0.01f) == "no error");
}

TEST_CASE("groups that do not fit a Linear's inputs are refused") {
  const auto with_groups_of_20 = [](Json& config) {
    config["quantization_config"]["config_groups"]["group_0"]["input_activations"]["group_size"] =
        20;
  };
  CHECK(contains(error_of("block", with_groups_of_20, kSameTensor),
                 "model.layers.0.self_attn.q_proj.weight takes 32 inputs, no multiple of the "
                 "groups of 20"));
}

TEST_CASE("what is quantized in another way than FP8 is named") {
  const auto changed = [](const char* side, const char* key, const Json& value) {
    return error_of(
        "static_kv",
        [&](Json& config) {
          config["quantization_config"]["config_groups"]["group_0"][side][key] = value;
        },
        kSameTensor);
  };
  CHECK(contains(changed("weights", "type", "int"),
                 "key 'format' is 'float-quantized', and weights are of type int, 8 bits"));
  CHECK(contains(changed("weights", "num_bits", 4),
                 "key 'format' is 'float-quantized', and weights are of type float, 4 bits"));
  CHECK(contains(changed("weights", "symmetric", false), "asymmetric FP8 is not read"));
  CHECK(contains(changed("weights", "dynamic", true), "weights with dynamic scales"));
  CHECK(contains(changed("weights", "strategy", "attn_head"), "strategy 'attn_head' of FP8"));
  CHECK(contains(changed("input_activations", "strategy", "channel"),
                 "config_groups.group_0: input_activations: static inputs of strategy 'channel'"));
  CHECK(contains(changed("input_activations", "dynamic", "local"), "key 'dynamic' is \"local\""));
  const auto with_method = [](const Json& quantization) {
    return error_of(
        "static_kv", [&](Json& config) { config["quantization_config"] = quantization; },
        kSameTensor);
  };
  CHECK(contains(with_method({{"quant_method", "modelopt"}, {"quant_algo", "W4A8_SVD"}}),
                 "key 'quant_algo' is 'W4A8_SVD', whose weights are not read"));
  CHECK(contains(with_method({{"quant_method", "fp8"}, {"activation_scheme", "rowwise"}}),
                 "key 'activation_scheme' is 'rowwise'"));
}

TEST_CASE("of several targets the exact name decides, then patterns, then the class") {
  const Checkpoint mixed(fp8_fixture("mixed"));
  const auto& linears = mixed.quantization.linears;
  const auto input_of_module = [&](const std::string& name) { return linears.at(name).input; };
  CHECK(input_of_module("model.layers.0.self_attn.q_proj") == InputQuantization::kStatic);
  CHECK(input_of_module("model.layers.1.mlp.down_proj") == InputQuantization::kDynamicToken);
  CHECK(input_of_module("lm_head") == InputQuantization::kDynamicToken);
  CHECK(input_of_module("model.embed_tokens") == InputQuantization::kNone);
  CHECK(!linears.contains("model.layers.0.self_attn.k_proj"));
}

TEST_CASE("what llm-compressor calls Mixtral's experts") {
  CHECK(renamed_expert("model.layers.0.block_sparse_moe.experts.3.w1") ==
        "model.layers.0.block_sparse_moe.experts.3.gate_proj");
  CHECK(renamed_expert("model.layers.0.block_sparse_moe.experts.3.w2") ==
        "model.layers.0.block_sparse_moe.experts.3.down_proj");
  CHECK(renamed_expert("model.layers.0.feed_forward.w1").empty());
}

}  // namespace kvcal
