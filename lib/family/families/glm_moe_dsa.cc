#include "family/tensor_tables.h"

namespace kvcal {

// DeepSeek-V3.2's attention and experts. Some layers use the selection of the layer before; the
// file holds an indexer for them, too. Source: transformers, models/glm_moe_dsa.
Architecture glm_moe_dsa_architecture() {
  return {
      .name = "glm_moe_dsa",
      .model_types = {"glm_moe_dsa"},
      .attention_class = "GlmMoeDsaAttention",
      .description = "GLM-5",
      .defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 2048, "qk_nope_head_dim": 192,
                      "qk_rope_head_dim": 64, "v_head_dim": 256, "rms_norm_eps": 1e-5,
                      "n_routed_experts": 256, "n_shared_experts": 1,
                      "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 1,
                      "topk_group": 1, "num_experts_per_tok": 8, "norm_topk_prob": true,
                      "routed_scaling_factor": 2.5, "index_topk": 2048, "index_head_dim": 128,
                      "index_n_heads": 32})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"mlp_bias", "false"}, {"indexer_rope_interleave", "true"}},
      .known_keys = {"scoring_func"},
      .rope_is_interleaved = true,
      .has_latent_attention = true,
      .indexer = Indexer::kInterleaved,
      .has_prediction_layers = true,
      .expert_layers = ExpertLayers::kTyped,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), indexer_rows(), mlp_rows(),
                               expert_rows(kProjExperts), correction_rows(), shared_expert_rows()}),
      .ignored_suffixes = indexer_suffixes(),
  };
}

}  // namespace kvcal
