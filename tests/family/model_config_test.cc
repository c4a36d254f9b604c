#include "family/model_config.h"

#include "family/expected_tensors.h"
#include "family/wrapper.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

Json config_of(const std::string& fixture) {
  return parse_json(read_text(test::model_fixture(fixture) / "config.json"),
                    {.has_python_constants = true});
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

// Expected: transformers 5.24, `build_alibi_tensor` of models/bloom, `build_mpt_alibi_tensor`.
TEST_CASE("model_config: ALiBi's slopes of heads that are no power of two") {
  for (const char* name : {"bloom", "mpt"}) {
    Json json = config_of(name);
    json[json.contains("n_head") ? "n_head" : "n_heads"] = 6;
    json[json.contains("n_head") ? "hidden_size" : "d_model"] = 48;
    CHECK(parse_model_config(json).alibi_slopes ==
          std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f});
  }
  CHECK(parse_model_config(config_of("llama")).alibi_slopes.empty());
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

TEST_CASE("model_config: sizes of the whole model are no lists, as transformers has it") {
  const Json config = config_of("llama");
  for (const char* key : {"hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads",
                          "num_key_value_heads"}) {
    Json json = config;
    json[key] = Json::array({config.at(key)});
    CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                         "key '" + std::string(key) + "' is an array"));
  }
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

TEST_CASE("wrappers: ignore lists name layers that do nothing under any prefix") {
  ModelConfig config = parse_model_config(config_of("mllama"));
  config.backbone_prefix = "language_model.model.";
  const std::vector<std::string> expected{"re:(.*\\.)?layers\\.1\\..*"};
  CHECK(outside_patterns({"language_model.model.layers.0.mlp.up_proj",
                          "language_model.model.layers.1.cross_attn.k_proj",
                          "language_model.model.layers.1.mlp.up_proj"},
                         config) == expected);
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
                         "expected a number above 0, up to 1"));
  }
}

// Source: transformers 5.23 `compute_default_rope_parameters` of each model, which in most reads no
// share, and `ROPE_INIT_FUNCTIONS`, which all do.
TEST_CASE("model_config: a share that the family's own formula does not read is refused") {
  const auto with_share = [](const std::string& fixture, const Json& rope) {
    Json json = config_of(fixture);
    json.erase("rope_scaling");
    json["rope_parameters"] = rope;
    return json;
  };
  const Json plain = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  const Json scaled = {{"rope_type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}};
  const ModelConfig turned = parse_model_config(with_share("llama", scaled));
  CHECK(turned.ropes.at(0).rotary_dim == turned.head_dim / 2);
  CHECK(test::contains(
      test::message_of([&] { parse_model_config(with_share("llama", plain)); }),
      "key 'partial_rotary_factor' is 0.5, which llama reads only with a scaled rope_type"));
  for (const std::string fixture : {"phi3", "mellum", "minimax_m2", "solar_open"}) {
    const ModelConfig config = parse_model_config(with_share(fixture, plain));
    CHECK(config.ropes.at(0).rotary_dim == config.head_dim / 2);
  }
  Json gemma = config_of("gemma4_26b");
  gemma["rope_parameters"]["sliding_attention"]["partial_rotary_factor"] = 0.5;
  CHECK(test::contains(test::message_of([&] { parse_model_config(gemma); }),
                       "rope_parameters.sliding_attention: key 'partial_rotary_factor'"));
}

// Source: transformers 5.23 `BambaConfig.__post_init__`.
TEST_CASE("model_config: half of each of Bamba's heads turns, where its rope has no share") {
  Json json = config_of("bamba");
  json["partial_rotary_factor"] = 1.0;
  const int64_t head_dim = parse_model_config(json).head_dim;
  CHECK(parse_model_config(json).ropes.at(0).rotary_dim == head_dim / 2);
  json["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 1.0}};
  CHECK(parse_model_config(json).ropes.at(0).rotary_dim == head_dim);
  json.erase("rope_parameters");
  json.erase("partial_rotary_factor");
  json["head_dim"] = 6;
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }), "expected an even"));
}

TEST_CASE("model_config: transformers 5 saves Nemotron-H with a list and no number of layers") {
  Json json = config_of("nemotron_h");
  const int64_t count = parse_model_config(json).num_hidden_layers;
  json.erase("num_hidden_layers");
  CHECK(parse_model_config(json).num_hidden_layers == count);
  json.erase("hybrid_override_pattern");
  json.erase("layers_block_type");
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "key 'num_hidden_layers' is missing"));
}

// Source: transformers 5.24 `NemotronHMamba2Mixer`, `NemotronHConfig.__post_init__`.
TEST_CASE("model_config: Nemotron-H's steps are bounded by time_step_min alone") {
  Json json = config_of("nemotron_h");
  json["time_step_limit"] = {0.25, 0.5};
  json["time_step_min"] = 0.125;
  CHECK(parse_model_config(json).recurrent.dt_min == 0.125f);
  CHECK(std::isinf(parse_model_config(json).recurrent.dt_max));
  json["mamba_dt_min"] = 0.0625;
  CHECK(parse_model_config(json).recurrent.dt_min == 0.0625f);
  json.erase("mamba_dt_min");
  json.erase("time_step_min");
  CHECK(parse_model_config(json).recurrent.dt_min == 0.001f);
}

TEST_CASE("model_config: transformers 5 saves infinity as an object") {
  Json json = config_of("falcon_h1");
  json["time_step_limit"] = {0.25, {{"__float__", "Infinity"}}};
  const RecurrentConfig& recurrent = parse_model_config(json).recurrent;
  CHECK(recurrent.dt_min == 0.25f);
  CHECK(std::isinf(recurrent.dt_max));
  json["time_step_limit"] = {0.25, {{"__float__", "NaN"}}};
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "expected two rising numbers"));
}

// Source: transformers 5.23 `ACT2FN`.
TEST_CASE("model_config: all names of GELU and of its approximation") {
  Json json = config_of("llama");
  const auto activation = [&](const char* name) {
    json["hidden_act"] = name;
    return parse_model_config(json).activation;
  };
  CHECK(activation("gelu_python") == Activation::kGelu);
  CHECK(activation("gelu_python_tanh") == Activation::kGeluTanh);
  CHECK(activation("gelu_accurate") == Activation::kGeluTanh);
}

// Source: transformers 5.23, models/gptj, models/codegen, models/cohere2_moe, models/gpt_oss.
TEST_CASE("model_config: keys that transformers does not read may say nothing else") {
  const auto message = [](const std::string& fixture, const char* key, const Json& value) {
    Json json = config_of(fixture);
    json[key] = value;
    return test::message_of([&] { parse_model_config(json); });
  };
  for (const std::string fixture : {"gptj", "codegen"})
    CHECK(test::contains(message(fixture, "rope_theta", 500.0), "supported is 10000.0"));
  const Json scaling = {{"rope_type", "linear"}, {"factor", 2.0}};
  CHECK(test::contains(message("cohere2_moe", "rope_scaling", scaling), "supported is null"));
  CHECK(test::contains(message("gpt_oss", "experts_per_token", 1),
                       "key 'experts_per_token' is 1, expected num_experts_per_tok"));
}

// Source: transformers 5.24, models/gpt_oss, models/bamba and the other hybrids, models/aria.
TEST_CASE("model_config: functions that the model has whatever the key says are refused") {
  const auto message = [](const std::string& fixture, const char* key, const Json& value) {
    Json json = config_of(fixture);
    json[key] = value;
    return test::message_of([&] { parse_model_config(json); });
  };
  CHECK(test::contains(message("gpt_oss", "swiglu_alpha", 1.5), "supported is 1.702"));
  CHECK(message("gpt_oss", "swiglu_alpha", 1.702) == "no error");
  // The convolution of a mixer has it, too; in Aria the routed experts have another.
  for (const std::string fixture : {"bamba", "falcon_h1", "granitemoehybrid", "jamba", "qwen3_next",
                                    "qwen3_5_text", "olmo_hybrid", "aria_text"}) {
    INFO(fixture);
    CHECK(test::contains(message(fixture, "hidden_act", "relu"), "supported is \"silu\""));
  }
}

// transformers 5.24 saves the standard key; its value is the file's, not the family's default for
// the other name.
TEST_CASE("model_config: a key counts under each of its names") {
  Json json = config_of("exaone");
  json.erase("layer_norm_epsilon");
  json["rms_norm_eps"] = 0.25;
  CHECK(parse_model_config(json).norm_eps == 0.25f);
  json.erase("rms_norm_eps");
  CHECK(parse_model_config(json).norm_eps == 1e-5f);
}

TEST_CASE("model_config: BioGPT's norms have torch's epsilon") {
  Json json = config_of("biogpt");
  json["layer_norm_eps"] = 0.25;
  CHECK(parse_model_config(json).norm_eps == 1e-5f);
}

// Source: transformers 5.24, `AutoConfig.from_pretrained`.
TEST_CASE("model_config: a Mistral that lists types of layers is a Ministral") {
  Json json = config_of("mistral_window");
  json["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  const ModelConfig config = parse_model_config(json);
  CHECK(config.architecture->name == "ministral");
  CHECK(config.layers[0].sliding_window == 0);
  CHECK(config.layers[1].sliding_window == 12);
  // Of a text_config it is not: the class of a wrapper's text model is that of its model_type.
  CHECK(parse_model_config(wrapped(json)).layers[0].sliding_window == 12);
}

TEST_CASE("model_config: heads of layers") {
  Json json = config_of("laguna");
  const auto refusal = [&] { return test::message_of([&] { parse_model_config(json); }); };
  const ModelConfig config = parse_model_config(json);
  CHECK(config.attention(0).heads == 4);
  CHECK(config.attention(1).heads == 6);
  CHECK(config.cache(1) == config.cache(0));
  json["num_attention_heads_per_layer"] = {4, 5, 6, 4};
  CHECK(refusal() ==
        "key 'num_attention_heads_per_layer' gives 5 heads and 2 KV heads, expected a "
        "multiple");
  json["num_attention_heads_per_layer"] = {4, 6};
  CHECK(test::contains(refusal(), "has 2 values, expected 4, one a layer"));
  json["num_attention_heads_per_layer"] = "4";
  CHECK(refusal() ==
        "key 'num_attention_heads_per_layer' is a string (\"4\"), expected a list with one entry a "
        "layer");
  json["num_attention_heads_per_layer"] = {4, 6, "6", 4};
  CHECK(test::contains(refusal(), "holds \"6\", expected numbers of heads"));
}

// Expected: transformers 5.23, `Gemma3nTextConfig`.
TEST_CASE("model_config: MLPs of layers, and residual streams") {
  Json json = config_of("gemma3n_text");
  const auto refusal = [&] { return test::message_of([&] { parse_model_config(json); }); };
  json["intermediate_size"] = {48, 32, 48, 48, 48, 64};
  const ModelConfig config = parse_model_config(json);
  CHECK(config.layer(1).intermediate_size == 32);
  CHECK(config.layer(5).intermediate_size == 64);  // which reads another layer's cache
  CHECK(config.intermediate_size == 64);
  CHECK(config.streams == 4);
  CHECK(config.carried_width(36) == 4 * 32 + 4 * 2 * 8);
  json["intermediate_size"] = {48, 32};
  CHECK(refusal() == "key 'intermediate_size' has 2 values, expected 6, one a layer");
  json["intermediate_size"] = {48, 32, 48, 1.5, 48, 48};
  CHECK(refusal() ==
        "key 'intermediate_size' holds 1.5 for layer 3, expected an integer from 1 to 1048576");
  json["intermediate_size"] = 48;
  json["activation_sparsity_pattern"] = {0.0, 0.0, 1.0, 0.0, 0.0, 0.0};
  CHECK(test::contains(refusal(),
                       "key 'activation_sparsity_pattern[2]' is 1, expected a number from 0 to"));
  json["activation_sparsity_pattern"] = nullptr;
  json["num_hidden_layers"] = 12;
  json["layer_types"] = nullptr;
  const ModelConfig deeper = parse_model_config(json);
  CHECK(deeper.layer(9).activation_sparsity == 0.95);
  CHECK(deeper.layer(10).activation_sparsity == 0.0);
  json["altup_active_idx"] = 4;
  CHECK(test::contains(refusal(), "altup_active_idx"));
}

/// MiMo-V2-Flash's keys as in the published config.json.
Json published_mimo() {
  Json json = config_of("mimo_v2_flash");
  for (const char* key : {"layer_types", "mlp_layer_types", "rope_parameters", "rms_norm_eps"})
    json.erase(key);
  json["hybrid_layer_pattern"] = {0, 1, 1, 0};
  json["moe_layer_freq"] = {0, 1, 0, 1};
  json["swa_rope_theta"] = 10000;
  json["layernorm_epsilon"] = 1e-5;
  json["sliding_window"] = json["sliding_window_size"] = 4;
  json["swa_num_key_value_heads"] = 2;
  json["routed_scaling_factor"] = nullptr;
  return json;
}

TEST_CASE("model_config: KV heads and widths of MiMo's layers, as published and as saved") {
  for (const Json& json : {config_of("mimo_v2_flash"), published_mimo()}) {
    const ModelConfig config = parse_model_config(json);
    const LayerCache wide{.heads = 2, .k_dim = 12, .v_dim = 8};
    const LayerCache narrow{.heads = 1, .k_dim = 12, .v_dim = 8};
    CHECK(config.cache(0) == narrow);
    CHECK(config.cache(1) == wide);
    CHECK(config.layer(0).sliding_window == 0);
    CHECK(config.layer(1).sliding_window == 5);
    CHECK(config.ropes.size() == 2);
    CHECK(config.layer(1).rope == 1);
    CHECK_FALSE(config.layer(0).is_moe);
    CHECK(config.layer(1).is_moe);
  }
  Json json = published_mimo();
  const auto refusal = [&] { return test::message_of([&] { parse_model_config(json); }); };
  json["hybrid_layer_pattern"] = {0, 2, 1, 0};
  CHECK(refusal() == "key 'hybrid_layer_pattern' holds 2, expected 0 or 1");
  json["hybrid_layer_pattern"] = {0, 1};
  CHECK(test::contains(refusal(), "has 2 values, expected 4, one a layer"));
  json.erase("hybrid_layer_pattern");
  json["swa_head_dim"] = 16;
  CHECK(test::contains(refusal(), "key 'swa_head_dim' is 16"));
}

TEST_CASE("model_config: the keys that attention of MiniMax-M3 may read") {
  Json json = config_of("minimax_m3_vl");
  Json& text = json["text_config"];
  CHECK(parse_model_config(json).most_tokens == 64);
  text["sparse_attention_config"]["sparse_attention_freq"] = {0, 0, 0};
  CHECK(parse_model_config(json).most_tokens == 0);
  text["layer_types"] = {"full_attention", "minimax_m3_sparse", "full_attention"};
  CHECK(parse_model_config(json).most_tokens == 64);
  text["layer_types"] = {"full_attention", "sliding_attention", "full_attention"};
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "layer 1 has attention \"sliding_attention\""));
}

TEST_CASE("model_config: Step 3.5's lists go on for layers of multi-token prediction") {
  Json json = config_of("step3p7");
  Json& text = json["text_config"];
  const ModelConfig config = parse_model_config(json);
  const auto is = [&](size_t layer, bool is_moe, int64_t heads, int64_t rope, float limit) {
    const LayerConfig& own = config.layers.at(layer);
    CHECK(own.is_moe == is_moe);
    CHECK(own.attention.heads == heads);
    CHECK(own.rope == rope);
    CHECK(own.mlp_limit == limit);
  };
  is(0, false, 4, 0, 0.5f);
  is(1, true, 6, 1, 0.0f);
  is(2, false, 6, 1, 0.0f);
  is(3, true, 4, 0, 0.3f);
  CHECK(config.ropes.at(0).theta == 50000.0);
  CHECK(config.ropes.at(0).rotary_dim == 4);
  CHECK(config.ropes.at(0).type == RopeConfig::Type::kLlama3);
  CHECK(config.ropes.at(1).type == RopeConfig::Type::kDefault);
  const auto refusal = [&] { return test::message_of([&] { parse_model_config(json); }); };
  text["moe_layers_enum"] = "1,x";
  CHECK(test::contains(refusal(), "key 'moe_layers_enum' is \"1,x\", expected numbers of layers"));
  text["moe_layers_enum"] = {1, 3};
  CHECK(refusal() == "no error");
  text["rope_theta"] = {50000.0, 1000.0};
  CHECK(test::contains(refusal(), "key 'rope_theta' has 2 values, expected 4, one a layer"));
}

TEST_CASE("model_config: keys inside DBRX's objects") {
  Json json = config_of("dbrx");
  CHECK(parse_model_config(json).qkv_limit == 1.0f);
  CHECK(parse_model_config(json).unread_keys.empty());
  json["attn_config"]["made_up"] = 3;
  CHECK(parse_model_config(json).unread_keys == std::vector<std::string>{"attn_config.made_up"});
  json["attn_config"]["kv_n_heads"] = 3;
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "key 'attn_config.kv_n_heads' is 3"));
}

TEST_CASE("modules: a norm with a weight a head is no Linear") {
  const ModelConfig config = parse_model_config(config_of("cohere_qk_norm"));
  for (const ModuleName& module : list_modules(config)) {
    INFO(module.name);
    CHECK(test::contains(module.name, "norm") == false);
  }
}

}  // namespace kvcal
