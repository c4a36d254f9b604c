#include "family/tensor_tables.h"

namespace kvcal {

// GLM's attention, DeepSeek-V3's experts. Source: transformers, models/glm4_moe.
Architecture glm4_moe_architecture() {
  return {
      .name = "glm4_moe",
      .model_types = {"glm4_moe"},
      .attention_class = "Glm4MoeAttention",
      .description = "GLM-4.5, GLM-4.6",
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
                      "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408,
                      "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128,
                      "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
                      "norm_topk_prob": true})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"use_qk_norm", &ModelConfig::has_qk_norm},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .has_prediction_layers = true,
      .draft = DraftLayer::kBehindLast,
      .masks_first_draft = true,
      .draft_scales = "attn",
      .expert_layers = ExpertLayers::kAfterFirst,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(),
                               with(when(&ModelConfig::has_qk_norm), head_norm_rows()), mlp_rows(),
                               expert_rows(kProjExperts), correction_rows(), shared_expert_rows()}),
  };
}

}  // namespace kvcal
