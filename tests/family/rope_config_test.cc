// RoPE in a config.json: what a family reads, and what is refused since programs differ.
#include "family/model_config.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

Json config_of(const std::string& fixture) {
  return parse_json(read_text(test::model_fixture(fixture) / "config.json"),
                    {.has_python_constants = true});
}

std::string refusal(const Json& json) {
  return test::message_of([&] { parse_model_config(json); });
}

}  // namespace

// Source: transformers 5.23 `LagunaConfig.__post_init__`.
TEST_CASE("rope_config: ropes of the class take the place of null") {
  for (const std::string fixture : {"laguna", "mellum"}) {
    Json json = config_of(fixture);
    json.erase("rope_parameters");
    const ModelConfig absent = parse_model_config(json);
    json["rope_parameters"] = nullptr;
    const ModelConfig null = parse_model_config(json);
    REQUIRE(absent.ropes.size() == 2);
    REQUIRE(null.ropes.size() == 2);
    CHECK(null.ropes[0].theta == 500000.0);
    CHECK(null.ropes[1].theta == 10000.0);
    CHECK(null.ropes[0].rotary_dim == absent.ropes[0].rotary_dim);
  }
}

TEST_CASE("rope_config: a latent cannot turn in proportion") {
  Json json = config_of("youtu");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_type", "proportional"}, {"partial_rotary_factor", 1.0}};
  CHECK(test::contains(refusal(json),
                       "rope type 'proportional' is not supported for the latent attention"));
}

// Source: transformers 5.24 `Ministral3Attention`, `LlamaAttention`.
TEST_CASE("rope_config: queries grow whatever the type of rope, in families that read the key") {
  for (const char* type : {"default", "linear", "dynamic", "proportional", "yarn"}) {
    INFO(type);
    Json json = config_of("ministral3");
    json["rope_parameters"]["rope_type"] = type;
    CHECK(parse_model_config(json).ropes.at(0).query_beta == 0.8);
  }
  Json json = config_of("llama");
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_theta", 1e4}, {"llama_4_scaling_beta", 0.8}};
  const ModelConfig llama = parse_model_config(json);
  CHECK(llama.ropes.at(0).query_beta == 0.0);
  CHECK(join(llama.unread_keys, ", ") == "rope_parameters.llama_4_scaling_beta");
}

TEST_CASE("rope_config: a theta that OLMo 3's layers with a window may have or not is refused") {
  Json json = config_of("olmo3");
  json["rope_theta"] = 250000.0;
  CHECK(refusal(json) ==
        "key 'rope_theta' is 250000, which programs take for all layers or for those without a "
        "window; expected 500000, or rope_parameters with entries 'full_attention' and "
        "'sliding_attention'");
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"full_attention", {{"rope_theta", 250000.0}}},
                             {"sliding_attention", {{"rope_theta", 125000.0}}}};
  const ModelConfig config = parse_model_config(json);
  REQUIRE(config.ropes.size() == 2);
  CHECK(config.ropes[0].theta == 250000.0);
  CHECK(config.ropes[1].theta == 125000.0);
}

TEST_CASE("rope_config: two trained lengths of a PhiMoE are refused") {
  Json json = config_of("phimoe");
  json["original_max_position_embeddings"] = 24;
  CHECK(refusal(json) ==
        "key 'original_max_position_embeddings' is 24, and in 'rope_scaling' 48; expected the "
        "same in both");
  json.erase("original_max_position_embeddings");
  CHECK(refusal(json) == "no error");
}

}  // namespace kvcal
