// Single keys of single families, as the classes of transformers 5.24 read them.

#include <string>
#include <string_view>
#include <utility>

#include "family/model_config.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

Json config_of(const std::string& fixture) {
  return parse_json(read_text(test::model_fixture(fixture) / "config.json"),
                    {.has_python_constants = true});
}

}  // namespace

TEST_CASE("single_keys: a decoder that attends both ways is refused, by whatever key says so") {
  const std::pair<const char*, const char*> cases[] = {
      {"llama", "is_causal"},
      {"qwen2", "is_causal"},
      {"gpt_neox", "is_causal"},
      {"gemma", "use_bidirectional_attention"},
      {"gemma2", "use_bidirectional_attention"},
      {"gemma3n_text", "use_bidirectional_attention"}};
  for (const auto& [name, key] : cases) {
    INFO(name);
    Json json = config_of(name);
    const ModelConfig before = parse_model_config(json);
    const bool causal = std::string_view(key) == "is_causal";
    json[key] = causal;
    CHECK(parse_model_config(json) == before);
    json[key] = !causal;
    CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                         std::string("key '") + key + "' is " + Json(!causal).dump()));
  }
}

TEST_CASE(
    "single_keys: Gemma's layers with a window turn by rope_local_base_freq, where "
    "rope_parameters do not say how") {
  for (const char* name : {"gemma3_text", "gemma3n_text"}) {
    INFO(name);
    Json json = config_of(name);
    json["rope_scaling"] = nullptr;
    json["rope_local_base_freq"] = 5000.0;
    const ModelConfig before = parse_model_config(json);
    REQUIRE(before.ropes.at(1).theta == 5000.0);
    json["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}};
    CHECK(parse_model_config(json).ropes == before.ropes);
    json["rope_parameters"]["sliding_attention"] = {{"rope_type", "default"}};
    CHECK(parse_model_config(json).ropes == before.ropes);
    json["rope_parameters"]["sliding_attention"]["rope_theta"] = 7000.0;
    CHECK(parse_model_config(json).ropes.at(1).theta == 7000.0);
  }
}

TEST_CASE("single_keys: Phi-4-multimodal has 8 KV heads where it says nothing, as its class has") {
  Json json = config_of("phi4_multimodal");
  json["num_attention_heads"] = 16;
  json["hidden_size"] = 96;
  json.erase("num_key_value_heads");
  CHECK(parse_model_config(json).num_key_value_heads == 8);
  json["num_key_value_heads"] = nullptr;
  CHECK(parse_model_config(json).num_key_value_heads == 16);
}

TEST_CASE("single_keys: GPT-Neo's words for each layer precede those with a number of times") {
  Json json = config_of("gpt_neo");
  json["attention_types"] =
      Json::array({{{"global", "local"}, json.at("num_layers").get<int>() / 2}});
  json["attention_layers"] = {"local", "global"};
  const ModelConfig config = parse_model_config(json);
  CHECK(config.layer(0).sliding_window > 0);
  CHECK(config.layer(1).sliding_window == 0);
  json["attention_layers"] = {"local", "sliding"};
  CHECK(test::message_of([&] { parse_model_config(json); }) ==
        "key 'attention_layers' holds \"sliding\", expected global or local");
  json["attention_layers"] = {"local"};
  CHECK(test::message_of([&] { parse_model_config(json); }) ==
        "key 'attention_layers' is [\"local\"], expected a word for each of 2 layers");
}

TEST_CASE("single_keys: Inkling's layers with a window have heads and distances of their own") {
  Json json = config_of("inkling_text");
  const ModelConfig config = parse_model_config(json);
  const LayerConfig& local = config.layer(0);
  CHECK(local.sliding_window == 7);
  CHECK(local.relative_extent == 7);
  CHECK(local.attention == AttentionSizes{6, 3, 12, 12});
  CHECK(local.cache == LayerCache{3, 12, 12});
  CHECK(local.rope == kNoRope);
  const LayerConfig& full = config.layer(1);
  CHECK(full.sliding_window == 0);
  CHECK(full.relative_extent == 12);
  CHECK(full.attention == AttentionSizes{4, 2, 8, 8});
  CHECK(config.ropes.at(static_cast<size_t>(full.rope)).queries_grow_late);
  CHECK(config.softmax_scale * full.softmax_factor == 0.125f);
  CHECK(config.output_vocab_size == 130);
  json["layer_types"] = {"hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"};
  json.erase("local_layer_ids");
  CHECK(parse_model_config(json).layers == config.layers);
  json["layer_types"][1] = "full_attention";
  CHECK(test::message_of([&] { parse_model_config(json); }) ==
        "key 'layer_types' holds \"full_attention\", expected hybrid or hybrid_sliding");
}

TEST_CASE("single_keys: Inkling's published names of its sizes") {
  Json json = config_of("inkling_text");
  const ModelConfig config = parse_model_config(json);
  json.erase("mlp_layer_types");
  json["dense_mlp_idx"] = 1;
  json["dense_intermediate_size"] = json["intermediate_size"];
  json["intermediate_size"] = json["moe_intermediate_size"];
  json["sconv_kernel_size"] = json["conv_kernel_size"];
  json["model_max_length"] = json["max_position_embeddings"];
  for (const char* key : {"moe_intermediate_size", "conv_kernel_size", "max_position_embeddings"})
    json.erase(key);
  CHECK(parse_model_config(json) == config);
}
