#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/deepseek_v3.
Architecture deepseek_v3_architecture() {
  return {
      .name = "deepseek_v3",
      .model_types = {"deepseek_v3", "kimi_k2"},
      .attention_class = "DeepseekV3Attention",
      .description = "DeepSeek-V3, V3.1, R1, Kimi-K2",
      .defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
                      "n_shared_experts": 1, "moe_intermediate_size": 2048,
                      "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4,
                      "num_experts_per_tok": 8, "norm_topk_prob": true,
                      "routed_scaling_factor": 2.5, "rope_interleave": true})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob},
                   {"rope_interleave", &ModelConfig::rope_is_interleaved}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"moe_layer_freq", "1"},
                {"topk_method", "\"noaux_tc\""},
                {"scoring_func", "\"sigmoid\""}},
      .has_latent_attention = true,
      .has_prediction_layers = true,
      .draft = DraftLayer::kBehindLast,
      .masks_first_draft = true,
      .draft_scales = "{}_proj",
      .expert_layers = ExpertLayers::kAfterFirst,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows(),
                               expert_rows(kProjExperts), correction_rows(), shared_expert_rows()}),
  };
}

}  // namespace kvcal
