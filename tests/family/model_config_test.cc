#include "family/model_config.h"

#include "family/modules.h"
#include "family/wrapper.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

Json config_of(const std::string& fixture) {
  return parse_json(read_text(test::model_fixture(fixture) / "config.json"));
}

Json wrapped(const Json& text) {
  return {{"model_type", "mistral3"}, {"text_config", text}};
}

}  // namespace

TEST_CASE("model_config: EXAONE 4 without a window needs no pattern") {
  Json json = config_of("exaone4");
  json.erase("layer_types");
  json["sliding_window"] = nullptr;
  json["sliding_window_pattern"] = nullptr;
  for (const LayerConfig& layer : parse_model_config(json).layers) {
    CHECK(layer.sliding_window == 0);
    CHECK(layer.rope == 0);
  }
  json["sliding_window"] = 8;
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "sliding_window_pattern"));
}

// Expected: transformers 5.23, `GlmMoeDsaConfig(num_hidden_layers=8, ..).indexer_types`.
TEST_CASE("model_config: layers that share the selection of an indexer") {
  Json json = config_of("glm_moe_dsa");
  json["num_hidden_layers"] = 8;
  const auto indexers = [&](const Json& keys) {
    Json changed = json;
    changed.update(keys);
    std::string found;
    for (const LayerConfig& layer : parse_model_config(changed).layers)
      found += layer.has_indexer ? 'F' : 'S';
    return found;
  };
  CHECK(indexers(Json::object()) == "FFFFFFFF");
  CHECK(indexers({{"index_topk_freq", 4}}) == "FFSSSFSS");
  CHECK(indexers({{"index_topk_freq", 3}, {"index_skip_topk_offset", 4}}) == "FFFFSSFS");
  CHECK(indexers({{"index_topk_pattern", "FSSFSSSF"}}) == "FSSFSSSF");
  CHECK(indexers({{"index_topk_pattern",
                   {"full", "shared", "full", "full", "full", "full", "full", "full"}}}) ==
        "FSFFFFFF");
}

TEST_CASE("model_config: ropes by layer type must have one for the layers without a window") {
  Json json = config_of("gemma3_text_v5");
  CHECK(parse_model_config(json).ropes.size() == 2);
  json["rope_parameters"].erase("full_attention");
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "rope_parameters.full_attention"));
}

TEST_CASE("model_config: Jamba with one expert has MLPs, whatever the experts per token") {
  Json json = config_of("jamba");
  json["num_experts"] = 1;
  json["num_experts_per_tok"] = 2;
  for (const LayerConfig& layer : parse_model_config(json).layers) CHECK_FALSE(layer.is_moe);
}

TEST_CASE("model_config: a wrapper's text_config has the type that it names, or its class'") {
  Json text = config_of("ministral3");
  CHECK(parse_model_config(wrapped(text)).model_type == "ministral3");
  text.erase("model_type");
  CHECK(parse_model_config(wrapped(text)).model_type == "mistral");
  // Checkpoints of classes with one text model may name any type.
  Json flat = config_of("qwen2_5_vl");
  flat["text_config"]["model_type"] = "qwen2";
  CHECK(parse_model_config(flat).model_type == "qwen2_5_vl_text");
}

TEST_CASE("model_config: a text_config may lack what its class has by default") {
  const Json text = {{"model_type", "llama"}, {"rms_norm_eps", 1e-5}, {"vocab_size", 32064}};
  const ModelConfig config = parse_model_config({{"model_type", "llava"}, {"text_config", text}});
  CHECK(config.hidden_size == 4096);
  CHECK(config.num_hidden_layers == 32);
  CHECK(config.vocab_size == 32064);
  CHECK(test::contains(test::message_of([&] { parse_model_config(text); }), "hidden_size"));
}

// transformers 5 names vision_tower.encoder model.vision_tower.encoder in memory, and lm_head
// without what lies around it; it matches these names with `ignore`.
TEST_CASE("wrappers: ignore lists name the parts beside the text model under any prefix") {
  const std::vector<std::string> ignored{
      "vision_tower.encoder.layers.0.mlp.fc1", "vision_tower.encoder.layers.0.mlp.fc2",
      "model.multi_modal_projector.linear_1", "language_model.model.layers.0.mlp.up_proj",
      "language_model.lm_head"};
  const std::vector<std::string> expected{"re:(.*\\.)?vision_tower\\..*",
                                          "re:(.*\\.)?multi_modal_projector\\..*", "lm_head"};
  CHECK(outside_patterns(ignored, parse_model_config(config_of("llava"))) == expected);
  Json unknown = config_of("llava");
  unknown["model_type"] = "newvl";
  CHECK(outside_patterns(ignored, parse_model_config(unknown)) == expected);
  CHECK(outside_patterns({"lm_head"}, parse_model_config(config_of("smolvlm"))).empty());
  CHECK(outside_patterns(ignored, parse_model_config(config_of("llama"))).empty());
}

TEST_CASE("model_config: where either word ties, one is enough") {
  Json json = config_of("llava_onevision");
  json["tie_word_embeddings"] = false;
  for (const bool inner : {false, true}) {
    json["text_config"]["tie_word_embeddings"] = inner;
    CHECK(parse_model_config(json).tie_word_embeddings == inner);
  }
}

TEST_CASE("model_config: the wrapper's word on tied embeddings wins") {
  Json json = wrapped(config_of("mistral_window"));
  for (const bool inner : {false, true}) {
    json["text_config"]["tie_word_embeddings"] = inner;
    json.erase("tie_word_embeddings");
    CHECK(parse_model_config(json).tie_word_embeddings == inner);
    for (const bool outer : {false, true}) {
      json["tie_word_embeddings"] = outer;
      CHECK(parse_model_config(json).tie_word_embeddings == outer);
    }
  }
}

TEST_CASE("model_config: more experts than there is memory for names are refused") {
  Json json = config_of("qwen3_moe");
  json["num_experts"] = 65536;
  json["num_hidden_layers"] = 10000;
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "key 'num_experts' is 65536 in each of 10000 layers"));
}

TEST_CASE("model_config: a share of a head's dimensions is a share") {
  Json json = config_of("qwen3_next");
  for (const Json& share : {Json(INT64_MAX), Json(1e300), Json(-1e300), Json(1.5), Json(0)}) {
    json["partial_rotary_factor"] = share;
    CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                         "expected an even number of them"));
  }
}

TEST_CASE("model_config: Bamba's half of a head is an even number of dimensions") {
  Json json = config_of("bamba");
  json["head_dim"] = 6;
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }), "multiple of 4"));
}

TEST_CASE("modules: a norm with a weight a head is no Linear") {
  const ModelConfig config = parse_model_config(config_of("cohere_qk_norm"));
  for (const ModuleName& module : list_modules(config)) {
    INFO(module.name);
    CHECK(test::contains(module.name, "norm") == false);
  }
}

}  // namespace kvcal
