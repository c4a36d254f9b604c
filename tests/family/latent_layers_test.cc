// Latent attention whose sizes, indexers and mixers differ by layer.
#include <string>

#include "family/architecture.h"
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

TEST_CASE("latent_layers: Dots 3 Note's layers with a window have latents of their own") {
  const ModelConfig config = parse_model_config(config_of("dots3_note"));
  CHECK(config.wrapper_type == "dots3_note");
  const LayerConfig &full = config.layer(1), &window = config.layer(2);
  CHECK(full.has_indexer);
  CHECK(full.reads_selected);
  CHECK(full.sliding_window == 0);
  CHECK(full.cache == LayerCache{.heads = 1, .k_dim = 20, .v_dim = 4});
  CHECK(full.attention.heads == 4);
  CHECK(!window.has_indexer);
  CHECK(!window.reads_selected);
  CHECK(window.sliding_window == 5);
  CHECK(window.cache == LayerCache{.heads = 1, .k_dim = 24, .v_dim = 6});
  CHECK(window.attention ==
        AttentionSizes{.heads = 2, .kv_heads = 2, .head_dim = 16, .value_dim = 8});
  CHECK(config.ropes.at(0).theta == 10000.0);
  CHECK(config.ropes.at(1).theta == 500.0);
  CHECK(config.ropes.at(1).rotary_dim == 6);
  CHECK(config.layer(1).is_moe);
  CHECK(!config.layer(2).is_moe);
  CHECK(config.moe.shared_intermediate_size == 12);
}

TEST_CASE("latent_layers: what transformers saves of Dots 3 Note is what was published") {
  Json published = config_of("dots3_note");
  published["model_type"] = "dots3_note_text";
  Json saved = published;
  const Json sizes{{"num_attention_heads", 2}, {"num_key_value_heads", 2}, {"q_lora_rank", 14},
                   {"kv_lora_rank", 24},       {"qk_nope_head_dim", 10},   {"qk_rope_head_dim", 6},
                   {"v_head_dim", 8}};
  saved["per_layer_config"] = {{"2", sizes}, {"3", sizes}};
  saved["layer_types"] = {"indexed_attention", "indexed_attention", "sliding_attention",
                          "sliding_attention"};
  saved["mlp_layer_types"] = {"dense", "sparse", "dense", "sparse"};
  saved["sliding_window"] = 5;
  saved["shared_experts_intermediate_size"] = 12;
  saved["rope_parameters"] = {
      {"indexed_attention",
       {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}}},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", 500.0}, {"partial_rotary_factor", 0.375}}}};
  for (const char* key : {"use_dsa", "swa_rope_theta", "swa_kv_lora_rank", "sliding_window_size",
                          "moe_layer_freq", "moe_shared_expert_intermediate_size"})
    saved.erase(key);
  ModelConfig from_published = parse_model_config(published);
  ModelConfig from_saved = parse_model_config(saved);
  from_published.unread_keys.clear();
  from_saved.unread_keys.clear();
  CHECK(from_published == from_saved);
}

TEST_CASE("latent_layers: without an indexer every key is read") {
  Json json = config_of("dots3_note");
  json["use_dsa"] = false;
  const ModelConfig config = parse_model_config(json);
  CHECK(config.indexer == IndexerConfig{});
  for (const LayerConfig& layer : config.layers) CHECK(!layer.reads_selected);
}

TEST_CASE("latent_layers: keys of Dots 3 Note that say what does not run") {
  const Json json = config_of("dots3_note");
  const auto with = [&](const Json& keys) {
    Json changed = json;
    changed.update(keys);
    return refusal(changed);
  };
  CHECK(with(Json::object()) == "no error");
  CHECK(test::contains(with({{"swa_head_dim", 18}}), "head_dim' is 18, expected"));
  CHECK(test::contains(with({{"q_lora_rank", nullptr}}), "key 'q_lora_rank' is missing or null"));
  CHECK(test::contains(with({{"num_key_value_heads", 2}}), "expected num_attention_heads 4"));
  CHECK(test::contains(with({{"swa_num_key_value_heads", 1}}), "is not num_attention_heads 2"));
  CHECK(test::contains(with({{"per_layer_config", {{"9", Json::object()}}}}), "names no layer"));
  CHECK(test::contains(with({{"per_layer_config", {{"2", {{"hidden_size", 8}}}}}}),
                       "holds 'hidden_size', which is not supported"));
  CHECK(test::contains(with({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
                             {"rope_parameters", {{"rope_theta", 1000.0}}}}),
                       "both describe ropes"));
  CHECK(test::contains(with({{"rope_parameters", {{"sliding_attention", Json::object()}}}}),
                       "rope_parameters.indexed_attention"));
  CHECK(test::contains(with({{"moe_layer_freq", 0}}), "key 'moe_layer_freq' is 0"));
  CHECK(test::contains(with({{"n_shared_experts", 0}}), "key 'n_shared_experts' is 0"));
  CHECK(test::contains(with({{"n_shared_experts", nullptr}}), "key 'n_shared_experts' is 0"));
  const Json text = config_of("dots3_note_text");
  Json other = text;
  other["rope_parameters"]["full_attention"]["factor"] = 2.0;
  CHECK(test::contains(refusal(other), "has other values for indexed_attention"));
}

TEST_CASE("latent_layers: the bound of the decays of Ling 3's delta nets") {
  Json json = config_of("bailing_hybrid");
  const ModelConfig config = parse_model_config(json);
  CHECK(config.recurrent.fades_by_key);
  CHECK(config.recurrent.gate_rank == 0);
  CHECK(config.recurrent.decay_floor == -5.0f);
  CHECK(config.attention_layers() == std::vector<int64_t>{1});
  json.erase("kda_lower_bound");
  CHECK(parse_model_config(json).recurrent.decay_floor == -5.0f);
  json["kda_safe_gate"] = false;
  CHECK(parse_model_config(json).recurrent.decay_floor == 0.0f);
  json["kda_lower_bound"] = 1.0;
  CHECK(test::contains(refusal(json), "key 'kda_lower_bound' is 1, expected a number"));
}

// Expected: transformers 5.24, `BailingHybridConfig`, which gives positions the head_dim of
// qk_rope_head_dim and saves both.
TEST_CASE("latent_layers: Ling 3 as transformers saves it") {
  Json json = config_of("bailing_hybrid");
  ModelConfig published = parse_model_config(json);
  json.erase("rope_scaling");
  json.update({{"head_dim", 4},
               {"linear_head_dim", 6},
               {"linear_num_heads", 4},
               {"linear_conv_kernel_dim", 4},
               {"qk_head_dim", 12},
               {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
               {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
               {"mlp_layer_types", {"dense", "sparse", "sparse"}}});
  ModelConfig saved = parse_model_config(json);
  published.unread_keys.clear();
  saved.unread_keys.clear();
  CHECK(saved == published);
}

}  // namespace kvcal
