#include "family/tensor_tables.h"

namespace kvcal {

// DeepSeek-V3's attention and experts. Source: transformers, models/glm4_moe_lite.
Architecture glm4_moe_lite_architecture() {
  return {
      .name = "glm4_moe_lite",
      .model_types = {"glm4_moe_lite"},
      .attention_class = "Glm4MoeLiteAttention",
      .description = "GLM-4.7-Flash",
      .defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192,
                      "qk_rope_head_dim": 64, "v_head_dim": 256, "rms_norm_eps": 1e-5,
                      "n_routed_experts": 64, "n_shared_experts": 1,
                      "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "n_group": 1,
                      "topk_group": 1, "num_experts_per_tok": 4, "norm_topk_prob": true,
                      "routed_scaling_factor": 1.8, "rope_interleave": true})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob},
                   {"rope_interleave", &ModelConfig::rope_is_interleaved}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .known_keys = {"partial_rotary_factor"},
      .has_latent_attention = true,
      .has_prediction_layers = true,
      .draft = DraftLayer::kBehindLast,
      .masks_first_draft = true,
      .expert_layers = ExpertLayers::kTyped,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows(),
                               expert_rows(kProjExperts), correction_rows(), shared_expert_rows()}),
  };
}

}  // namespace kvcal
