#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

constexpr FamilyRow kRows[] = {
    // Norms of Q and K behind RoPE, whose theta a fixed alpha raises.
    {"hunyuan_v1_dense", "", "HunYuanDenseV1Attention", "Hunyuan 0.5B, 1.8B, 4B, 7B",
     [](Architecture& family) {
       family.defaults = R"({"rms_norm_eps": 1e-5})";
       family.switches = attention_bias_switches();
       family.known_keys = {"use_qk_norm"};
       family.norms_after_rope = true;
       family.has_rope_alpha = true;
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(),
            head_norm_rows("self_attn.query_layernorm.weight", "self_attn.key_layernorm.weight"),
            mlp_rows()});
     }},
    // Hunyuan within HunyuanOCR.
    {"hunyuan_vl", "hunyuan_v1_dense", "HunYuanVLDenseV1Attention", "text model of HunyuanOCR",
     [](Architecture& family) {
       family.model_types = {"hunyuan_vl_text"};
       family.defaults.merge(R"({"tie_word_embeddings": true})");
       family.text_defaults = R"({"vocab_size": 290943, "hidden_size": 4096,
         "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
         "max_position_embeddings": 2048})";
       family.aliases = {{"head_dim", "attention_head_dim"}, {"vocab_size", "org_vocab_size"}};
       add(family.known_keys, {"vision_config", "org_vocab_size"});
     }},
    // The dense Hunyuan's attention, experts of the MLP's width beside an expert for all tokens.
    {"hunyuan_v1_moe", "hunyuan_v1_dense", "HunYuanMoEV1Attention", "Hunyuan A13B",
     [](Architecture& family) {
       family.defaults.merge(R"({"num_experts": 1, "moe_topk": 1, "n_shared_experts": 1})");
       family.aliases = {{"num_experts_per_tok", "moe_topk"},
                         {"moe_intermediate_size", "intermediate_size"}};
       family.known_keys = {"num_shared_expert", "use_qk_norm"};
       family.has_experts_by_layer = true;
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.expert_layers = ExpertLayers::kAll;
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(),
            head_norm_rows("self_attn.query_layernorm.weight", "self_attn.key_layernorm.weight"),
            expert_rows(proj_experts("mlp.gate.wg.weight")),
            shared_expert_rows({"mlp.shared_mlp.gate_proj.weight", "mlp.shared_mlp.up_proj.weight",
                                "mlp.shared_mlp.down_proj.weight"})});
     }},
    // Qwen 3's attention, sigmoid routing and a shared expert.
    {"hy_v3", "", "HYV3Attention", "Hunyuan 3",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "rope_theta": 11158840.0, "num_experts": 192, "num_experts_per_tok": 8,
         "num_shared_experts": 1, "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
         "router_scaling_factor": 2.826})";
       family.aliases = {{"n_shared_experts", "num_shared_experts"}};
       family.switches = bias_switches();
       family.numbers = {{"router_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.has_prediction_layers = true;
       family.expert_layers = ExpertLayers::kTyped;
       family.router_score = RouterScore::kSigmoid;
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
            expert_rows(proj_experts("mlp.router.gate.weight")), correction_rows("mlp.expert_bias"),
            shared_expert_rows({"mlp.shared_mlp.gate_proj.weight", "mlp.shared_mlp.up_proj.weight",
                                "mlp.shared_mlp.down_proj.weight"}),
            shared_bias_rows({"mlp.shared_mlp.gate_proj.bias", "mlp.shared_mlp.up_proj.bias",
                              "mlp.shared_mlp.down_proj.bias"})});
     }},
};

}  // namespace

Lineage hunyuan_lineage() {
  return kRows;
}

}  // namespace kvcal
