#include "stored/stored_format.h"

#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;

namespace {

using Cache = KvScheme::Cache;

KvScheme scheme_of(const Json& quantization) {
  const test::ScratchFolder folder;
  Json config = parse_json(read_text(test::model_fixture("llama") / "config.json"));
  if (!quantization.is_null()) config["quantization_config"] = quantization;
  test::write_file(folder / "config.json", config.dump());
  fs::copy(test::model_fixture("llama") / "model.safetensors", folder / "model.safetensors");
  return read_kv_scheme(read_quantization_config(ModelDir(folder.path())));
}

Json tensors_with(const Json& changes) {
  Json scheme = {{"num_bits", 8},
                 {"type", "float"},
                 {"strategy", "tensor"},
                 {"dynamic", false},
                 {"symmetric", true}};
  scheme.update(changes);
  return {{"quant_method", "compressed-tensors"}, {"kv_cache_scheme", scheme}};
}

}  // namespace

TEST_CASE("what each form says of the KV cache") {
  CHECK(scheme_of(nullptr).cache == Cache::kNotSaid);
  CHECK(scheme_of({{"quant_method", "compressed-tensors"}}).cache == Cache::kUnquantized);
  CHECK(scheme_of({{"quant_method", "fp8"}}).cache == Cache::kNotSaid);
  CHECK(scheme_of({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}).cache ==
        Cache::kUnquantized);
  CHECK(scheme_of({{"quant_method", "quark"}, {"export", {{"kv_cache_group", Json::array()}}}})
            .cache == Cache::kUnquantized);
  const Json quark_group = {
      {"quant_method", "quark"},
      {"export", {{"kv_cache_group", {"*k_proj", "*v_proj"}}}},
      {"layer_quant_config", {{"*k_proj", {{"output_tensors", {{"dtype", "fp8_e4m3"}}}}}}}};
  for (const Json& config :
       {tensors_with(Json::object()), Json{{"quant_method", "fp8"}, {"kv_cache_scheme", "static"}},
        Json{{"quant_method", "modelopt"}, {"kv_cache_quant_algo", "FP8"}},
        Json{{"quant_method", "modelopt"}, {"quantization", {{"kv_cache_quant_algo", "fp8"}}}},
        Json{{"quant_method", "modelopt"},
             {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}}},
        quark_group}) {
    INFO(config.dump());
    const KvScheme scheme = scheme_of(config);
    CHECK(scheme.cache == Cache::kFp8);
    CHECK(scheme.strategy == Strategy::kTensor);
  }
  CHECK(scheme_of(tensors_with({{"strategy", "attn_head"}})).strategy == Strategy::kAttnHead);
}

TEST_CASE("ModelOpt's NVFP4 cache is told by a word or by its arguments") {
  CHECK(scheme_of({{"quant_method", "modelopt"}, {"kv_cache_quant_algo", "NVFP4"}}).cache ==
        Cache::kNvfp4);
  CHECK(scheme_of({{"quant_method", "modelopt"}, {"kv_cache_scheme", "nvfp4"}}).cache ==
        Cache::kNvfp4);
  CHECK(scheme_of({{"quant_method", "modelopt"},
                   {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}}}})
            .cache == Cache::kNvfp4);
}

TEST_CASE("an INT8 cache is told by compressed-tensors' type, ModelOpt's word or vLLM-Ascend's") {
  const KvScheme scheme = scheme_of(tensors_with({{"type", "int"}, {"strategy", "attn_head"}}));
  CHECK(scheme.cache == Cache::kInt8);
  CHECK(scheme.strategy == Strategy::kAttnHead);
  CHECK(scheme.format().is_int8());
  CHECK(scheme_of({{"quant_method", "modelopt"}, {"kv_cache_quant_algo", "INT8"}}).cache ==
        Cache::kInt8);
  CHECK(scheme_of({{"quant_method", "modelopt"},
                   {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "int"}}}})
            .cache == Cache::kInt8);
  CHECK(scheme_of({{"quant_method", "ascend"}, {"kv_cache_type", "C8"}}).cache == Cache::kInt8);
  CHECK(scheme_of({{"quant_method", "ascend"}}).cache == Cache::kUnquantized);
}

TEST_CASE("a KV cache that no engine runs is no FP8 cache") {
  const auto problem = [](const Json& config) {
    const KvScheme scheme = scheme_of(config);
    CHECK(scheme.cache == Cache::kOther);
    return scheme.where + ": " + scheme.problem;
  };
  CHECK(contains(problem(tensors_with({{"dynamic", true}})),
                 "quantization_config.kv_cache_scheme: key 'dynamic' is true"));
  CHECK(contains(problem(tensors_with({{"strategy", "token"}})), "key 'strategy' is 'token'"));
  CHECK(contains(problem(tensors_with({{"num_bits", 4}})), "type 'float' of 4 bits"));
  CHECK(
      contains(problem(tensors_with({{"type", "int"}, {"num_bits", 4}})), "type 'int' of 4 bits"));
  CHECK(contains(problem(tensors_with({{"type", "int"}, {"strategy", "channel"}})),
                 "key 'strategy' is 'channel', expected tensor or attn_head"));
  CHECK(contains(problem(tensors_with({{"symmetric", false}})), "asymmetric"));
  CHECK(contains(test::message_of([&] {
                   problem(tensors_with({{"strategi", "token"}}));
                 }),
                 "quantization_config.kv_cache_scheme: unknown key 'strategi' (did you mean "
                 "'strategy'?)"));
  CHECK(contains(problem({{"quant_method", "modelopt"}, {"kv_cache_quant_algo", "NVFP4_AFFINE"}}),
                 "quantization_config.kv_cache_quant_algo: found \"NVFP4_AFFINE\", expected FP8, "
                 "INT8 or NVFP4"));
  CHECK(contains(problem({{"quant_method", "fp8"}, {"kv_cache_scheme", "dynamic"}}),
                 "found \"dynamic\", expected \"static\""));
  CHECK(contains(
      problem({{"quant_method", "quark"},
               {"export", {{"kv_cache_group", {"*k_proj"}}}},
               {"layer_quant_config", {{"*k_proj", {{"output_tensors", {{"dtype", "int8"}}}}}}}}),
      "the outputs of '*k_proj' are int8, expected fp8_e4m3"));
}

TEST_CASE("scales have the granularity that the config says") {
  const ModelConfig config =
      parse_model_config(parse_json(read_text(test::model_fixture("llama") / "config.json")));
  REQUIRE(config.cache(0).heads == 2);
  const LayerKvScales one{.k = {{0.5f}}, .v = {{0.5f}}},
      each{.k = {{0.5f}, {0.25f}}, .v = {{0.5f}, {0.25f}}},
      ignored{.k = {}, .v = {}, .ignored = true};
  const KvScheme tensor{.cache = Cache::kFp8, .strategy = Strategy::kTensor, .where = "config"},
      head{.cache = Cache::kFp8, .strategy = Strategy::kAttnHead, .where = "config"}, any;
  for (const KvScheme& scheme : {tensor, any}) check_strategy(scheme, {one, ignored}, config);
  for (const KvScheme& scheme : {head, any}) check_strategy(scheme, {each, ignored}, config);
  CHECK(contains(test::message_of([&] {
                   check_strategy(head, {each, one}, config);
                 }),
                 "config has strategy 'attn_head', model.layers.1.self_attn has 1 K scales, "
                 "expected 2"));
  CHECK(contains(test::message_of([&] {
                   check_strategy(tensor, {each, one}, config);
                 }),
                 "config has strategy 'tensor', model.layers.0.self_attn has 2 K scales, expected "
                 "1"));
}
