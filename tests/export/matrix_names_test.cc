// Kinds of modules by their names: names are those of published checkpoints.
#include "export/weights_by_name.h"

#include "support/catch.h"

using namespace kvcal;

TEST_CASE("matrix_names: what is no Linear of a language model, by name") {
  const std::pair<const char*, const char*> kNames[] = {
      {"model.embed_tokens", "embedding"},
      {"transformer.wte", "embedding"},
      {"model.embed_tokens_per_layer", "embedding"},
      {"gpt_neox.embed_in", "embedding"},
      {"backbone.embeddings", "embedding"},
      {"shared", "embedding"},
      {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias", "embedding"},
      {"lm_head", "head"},
      {"output", "head"},
      {"score", "head"},
      {"model.layers.61.shared_head.head", "head"},
      {"model.layers.0.mlp.gate", "router"},
      {"model.layers.0.mlp.router", "router"},
      {"model.layers.0.mlp.gate.wg", "router"},
      {"model.layers.0.mlp.shared_expert_gate", "router"},
      {"model.layers.0.block_sparse_moe.gate", "router"},
      {"language_model.model.layers.0.self_attention_res_proj", "vector"},
      {"language_model.model.output_attn_res_proj", "vector"},
      {"model.layers.0.self_attn.q_norm", "norm"},
      {"bert.encoder.layer.0.output.LayerNorm", "norm"},
      {"model.visual.blocks.0.attn.qkv", "tower"},
      {"vision_tower.vision_model.encoder.layers.0.mlp.fc1", "tower"},
      {"model.multi_modal_projector.linear_1", "tower"},
      {"audio_tower.layers.0.self_attn.k_proj", "tower"},
  };
  for (const auto& [module, reason] : kNames) {
    CAPTURE(module);
    CHECK(reason_by_name(module).value_or("") == reason);
  }
  for (const char* module :
       {"model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate_proj",
        "transformer.h.0.attn.c_attn", "model.layers.0.mlp.experts.3.down_proj",
        "model.layers.0.mlp.shared_expert.up_proj", "model.layers.0.block_sparse_moe.experts.0.w1",
        "backbone.layers.0.mixer.in_proj", "bert.encoder.layer.0.output.dense",
        "model.layers.0.linear_attn.in_proj_qkvz", "model.language_model.layers.0.self_attn.o_proj",
        "model.layers.0.attention.output", "model.layers.61.eh_proj"}) {
    CAPTURE(module);
    CHECK_FALSE(reason_by_name(module));
  }
}

TEST_CASE("matrix_names: modules with one global scale") {
  using Sets = std::vector<std::vector<std::string>>;
  CHECK(sharing_modules({"a.self_attn.k_proj", "a.self_attn.q_proj", "a.self_attn.v_proj"}) ==
        Sets{{"a.self_attn.q_proj", "a.self_attn.k_proj", "a.self_attn.v_proj"}});
  CHECK(sharing_modules({"a.mlp.gate_proj", "a.mlp.up_proj", "a.mlp.experts.0.gate_proj",
                         "a.mlp.experts.0.up_proj"}) == Sets{{"a.mlp.gate_proj", "a.mlp.up_proj"}});
  CHECK(sharing_modules({"e.0.w1", "e.0.w2", "e.0.w3"}) == Sets{{"e.0.w1", "e.0.w3"}});
  CHECK(sharing_modules({"a.attn.q_proj", "a.attn.k_proj"}).empty());
}

TEST_CASE("matrix_names: names of experts in a stack") {
  CHECK(stacked_kind("a.experts.gate_up_proj") == Stacked::kGateUp);
  CHECK(stacked_kind("a.experts.down_proj.weight") == Stacked::kDown);
  CHECK_FALSE(stacked_kind("a.experts.up_proj"));
  CHECK(split_module("a.experts.gate_up_proj", Stacked::kGateUp, 3, 1) == "a.experts.3.up_proj");
  CHECK(split_module("a.experts.down_proj.weight", Stacked::kDown, 0, 0) ==
        "a.experts.0.down_proj");
}
