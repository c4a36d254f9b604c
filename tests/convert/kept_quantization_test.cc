#include "convert/output_model.h"

#include "convert/support/convert_case.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// What is kept of a checkpoint with that quantization_config and, where it is no null, that
/// hf_quant_config.json.
std::optional<SourceQuantization> kept_of(const Json& config, const Json& file = nullptr) {
  const ScratchFolder scratch;
  copy_folder(model_fixture("llama"), scratch / "model");
  if (!config.is_null())
    change_config(scratch / "model", [&](Json& whole) { whole["quantization_config"] = config; });
  if (!file.is_null()) write_json(scratch / "model" / kModelOptFileName, file);
  return read_kept_quantization(ModelDir(scratch / "model"));
}

const Json kScheme = {{"num_bits", 8}, {"type", "float"}};
const Json kGroup = {{"targets", {"Linear"}}, {"weights", kScheme}};

}  // namespace

TEST_CASE("kept quantization: 16-bit weights have none, with or without a cache") {
  CHECK_FALSE(kept_of(nullptr));
  CHECK_FALSE(kept_of({{"quant_method", "compressed-tensors"},
                       {"config_groups", Json::object()},
                       {"kv_cache_scheme", kScheme}}));
  CHECK_FALSE(kept_of({{"quant_method", "modelopt"},
                       {"quant_algo", "FP8"},
                       {"ignore", {"*"}},
                       {"kv_cache_scheme", kScheme}}));
  CHECK_FALSE(kept_of({{"quant_method", "quark"},
                       {"global_quant_config", {{"weight", nullptr}}},
                       {"layer_quant_config", {{"*k_proj", {{"weight", nullptr}}}}}}));
  CHECK_FALSE(kept_of(
      nullptr, {{"quantization", {{"quant_algo", nullptr}, {"kv_cache_quant_algo", "FP8"}}}}));
}

TEST_CASE("kept quantization: compressed-tensors' without the cache") {
  const auto kept = kept_of({{"quant_method", "compressed-tensors"},
                             {"config_groups", {{"group_0", kGroup}}},
                             {"kv_cache_scheme", kScheme}});
  REQUIRE(kept);
  CHECK(kept->format == "compressed-tensors");
  CHECK(kept->config.at("kv_cache_scheme").is_null());
  CHECK(kept->config.at("config_groups").at("group_0") == kGroup);
  // Queries alone are quantized attention.
  CHECK(kept_of({{"quant_method", "compressed-tensors"},
                 {"config_groups",
                  {{"group_0",
                    {{"targets", {"LlamaAttention"}},
                     {"weights", nullptr},
                     {"input_activations", kScheme}}}}}}));
}

TEST_CASE("kept quantization: ModelOpt's in both of its files") {
  const Json nested = {
      {"quantization",
       {{"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}, {"exclude_modules", {"lm_head"}}}}};
  const auto both = kept_of({{"quant_method", "modelopt"},
                             {"quant_algo", "FP8"},
                             {"ignore", {"lm_head"}},
                             {"kv_cache_scheme", kScheme}},
                            nested);
  REQUIRE(both);
  CHECK(both->format == "modelopt");
  CHECK_FALSE(both->config.contains("kv_cache_scheme"));
  CHECK(both->config.at("ignore") == Json::array({"lm_head"}));
  const Json& inner = both->modelopt_file.at("quantization");
  CHECK(inner.at("kv_cache_quant_algo").is_null());
  CHECK(inner.at("quant_algo") == "FP8");
  const auto file_alone = kept_of(nullptr, nested);
  REQUIRE(file_alone);
  CHECK(file_alone->format == "modelopt");
  CHECK(file_alone->config.is_null());
  // vLLM's names of its kinds.
  const auto fp4 = kept_of({{"quant_method", "modelopt_fp4"}, {"quant_algo", "NVFP4"}});
  REQUIRE(fp4);
  CHECK(fp4->format == "modelopt");
}

TEST_CASE("kept quantization: Quark's loses what it says of outputs") {
  const Json weight = {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}};
  const Json global = {{"weight", weight}, {"output_tensors", nullptr}};
  const auto kept =
      kept_of({{"quant_method", "quark"},
               {"export", {{"kv_cache_group", {"*k_proj", "*v_proj"}}}},
               {"global_quant_config", global},
               {"layer_quant_config",
                {{"*k_proj", {{"weight", weight}, {"output_tensors", weight}}},
                 {"*down_proj", {{"weight", nullptr}, {"output_tensors", nullptr}}}}}});
  REQUIRE(kept);
  CHECK(kept->config.at("export").at("kv_cache_group") == Json::array());
  CHECK(kept->config.at("global_quant_config") == global);
  // An entry that now says what the global one does is none.
  CHECK(kept->config.at("layer_quant_config").size() == 1);
  CHECK(kept->config.at("layer_quant_config").contains("*down_proj"));
}

TEST_CASE("kept quantization: fp8's, and any other method as it is") {
  const auto fp8 = kept_of(
      {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"kv_cache_scheme", "static"}});
  REQUIRE(fp8);
  CHECK(fp8->format == "fp8");
  CHECK_FALSE(fp8->config.contains("kv_cache_scheme"));
  CHECK(fp8->config.at("activation_scheme") == "dynamic");
  const Json awq = {{"quant_method", "awq"}, {"bits", 4}};
  const auto other = kept_of(awq);
  REQUIRE(other);
  CHECK(other->format == "awq");
  CHECK(other->config == awq);
}

TEST_CASE("kept quantization: what is no configuration is refused") {
  CHECK(contains(message_of([] { kept_of("fp8"); }),
                 "/config.json: quantization_config: found a string, expected an object"));
  CHECK(contains(message_of([] {
                   kept_of({{"bits", 4}});
                 }),
                 "/config.json: quantization_config: key 'quant_method' is missing"));
  const ScratchFolder scratch;
  copy_folder(model_fixture("llama"), scratch / "model");
  write_file(scratch / "model" / kModelOptFileName, "none");
  CHECK(contains(message_of([&] { read_kept_quantization(ModelDir(scratch / "model")); }),
                 "/hf_quant_config.json: "));
}
