#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

TensorRows glm4_norm_rows() {
  return {
      {kInputNorm, "input_layernorm.weight"},
      {kAttentionOutputNorm, "post_self_attn_layernorm.weight"},
      {kMlpNorm, "post_attention_layernorm.weight"},
      {kMlpOutputNorm, "post_mlp_layernorm.weight"},
  };
}

TensorRows fused_attention_rows() {
  return {{kQueryKeyValue, "attention.query_key_value.weight"},
          {kQueryKeyValueBias,
           "attention.query_key_value.bias",
           {},
           {when(&ModelConfig::attention_bias)}},
          {kOutput, "attention.dense.weight"}};
}

constexpr FamilyRow kRows[] = {
    {"glm", "", "GlmAttention", "GLM-4-9B, GLM-Edge",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
         "attention_bias": true, "partial_rotary_factor": 0.5})";
       family.switches = {{"attention_bias", &ModelConfig::attention_bias}};
       family.rope_is_interleaved = true;
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), fused_mlp_rows()});
     }},
    // GLM with norms on both sides.
    {"glm4", "glm", "Glm4Attention", "GLM-4-0414, GLM-Z1",
     [](Architecture& family) {
       family.layer_tensors = joined({glm4_norm_rows(), attention_rows(), fused_mlp_rows()});
     }},
    // GLM-4 within GLM-4.1V; Q, K and V have biases.
    {"glm4v", "glm4", "Glm4vTextAttention", "text model of GLM-4.1V, GLM-4.6V-Flash",
     [](Architecture& family) {
       family.model_types = {"glm4v_text"};
       family.defaults = R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5,
         "partial_rotary_factor": 1.0})";
       family.text_defaults = R"({"vocab_size": 151552, "hidden_size": 4096,
         "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32,
         "max_position_embeddings": 32768})";
       family.switches = {};
       family.known_keys = {"attention_bias"};
       family.resolve = [](const Json&, ModelConfig& config) { config.attention_bias = true; };
     }},
    // The text model of GLM-4.1V without biases.
    {"glm_ocr", "glm4v", "GlmOcrTextAttention", "text model of GLM-OCR",
     [](Architecture& family) {
       family.model_types = {"glm_ocr_text"};
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5})";
       family.text_defaults = R"({"vocab_size": 59392, "hidden_size": 1024,
         "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16,
         "max_position_embeddings": 131072})";
       family.resolve = nullptr;
       family.has_prediction_layers = true;
     }},
    // GLM's attention, DeepSeek-V3's experts.
    {"glm4_moe", "", "Glm4MoeAttention", "GLM-4.5, GLM-4.6",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408, "num_experts_per_tok": 8,
         "n_shared_experts": 1, "n_routed_experts": 128, "n_group": 1, "topk_group": 1,
         "first_k_dense_replace": 1, "norm_topk_prob": true})";
       family.aliases = {{"num_experts", "n_routed_experts"}};
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"use_qk_norm", &ModelConfig::has_qk_norm},
                          {"norm_topk_prob", &ModelConfig::norm_topk_prob}};
       family.numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}};
       family.has_prediction_layers = true;
       family.draft = DraftLayer::kBehindLast;
       family.masks_first_draft = true;
       family.draft_scales = "attn";
       family.expert_layers = ExpertLayers::kAfterFirst;
       family.router_score = RouterScore::kSigmoid;
       family.group_score = GroupScore::kSumOfTwoLargest;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(),
                   with(when(&ModelConfig::has_qk_norm), head_norm_rows()), mlp_rows(),
                   expert_rows(), correction_rows(), shared_expert_rows()});
     }},
    // GLM-4.5 with RoPE in all dimensions, under names of its own. Source: transformers 5.24,
    // models/sarvam_moe and conversion_mapping.py.
    {"sarvam_moe", "glm4_moe", "Glm4MoeAttention", "Sarvam 30B",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 4, "head_dim": 64, "rope_theta": 8000000.0,
         "moe_intermediate_size": 1024, "num_experts_per_tok": 6, "n_shared_experts": 1,
         "num_experts": 128, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
         "norm_topk_prob": true, "routed_scaling_factor": 2.5, "use_qk_norm": true,
         "partial_rotary_factor": 1.0})";
       add(family.aliases,
           {{"n_shared_experts", "num_shared_experts"}, {"attention_bias", "use_qkv_bias"}});
       family.has_prediction_layers = false;
       family.draft = DraftLayer::kNone;
       family.masks_first_draft = false;
       family.draft_scales = "";
       family.attention_module = "attention";
       family.model_tensors = model_rows("word_embeddings.weight");
       family.layer_tensors = joined(
           {pre_norm_rows(), fused_attention_rows(),
            with(when(&ModelConfig::has_qk_norm), head_norm_rows("attention.query_layernorm.weight",
                                                                 "attention.key_layernorm.weight")),
            mlp_rows(), expert_rows(), correction_rows("mlp.gate.expert_bias"),
            shared_expert_rows()});
     }},
    // GLM-4.5 within GLM-4.5V.
    {"glm4v_moe", "glm4_moe", "Glm4vMoeTextAttention", "text model of GLM-4.5V, GLM-4.6V",
     [](Architecture& family) {
       family.model_types = {"glm4v_moe_text"};
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attention_bias": true,
         "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408, "num_experts_per_tok": 8,
         "n_shared_experts": 1, "n_routed_experts": 128, "n_group": 1, "topk_group": 1,
         "first_k_dense_replace": 1, "norm_topk_prob": true})";
       family.text_defaults = R"({"vocab_size": 151424, "hidden_size": 4096,
         "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96,
         "max_position_embeddings": 65536})";
       family.fixed = {{"use_qk_norm", "false"}};
       family.draft = DraftLayer::kNone;  // no engine has been asked for its names
     }},
};

}  // namespace

Lineage glm_lineage() {
  return kRows;
}

}  // namespace kvcal
