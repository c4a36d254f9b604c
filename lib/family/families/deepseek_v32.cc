#include "family/tensor_tables.h"

namespace kvcal {

// DeepSeek-V3 whose attention reads the index_topk tokens that an indexer selects. Source:
// transformers, models/deepseek_v32.
Architecture deepseek_v32_architecture() {
  return {
      .name = "deepseek_v32",
      .model_types = {"deepseek_v32"},
      .attention_class = "DeepseekV32Attention",
      .description = "DeepSeek-V3.2",
      .defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
                      "n_shared_experts": 1, "moe_intermediate_size": 2048,
                      "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4,
                      "num_experts_per_tok": 8, "norm_topk_prob": true,
                      "routed_scaling_factor": 2.5, "index_topk": 2048, "index_head_dim": 128,
                      "index_n_heads": 64})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"mlp_bias", "false"}, {"indexer_rope_interleave", "false"}},
      .known_keys = {"scoring_func"},
      .rope_is_interleaved = true,
      .has_latent_attention = true,
      .indexer = Indexer::kHalves,
      .has_prediction_layers = true,
      .expert_layers = ExpertLayers::kTyped,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), indexer_rows(), mlp_rows(),
                               expert_rows(kProjExperts), correction_rows(), shared_expert_rows()}),
  };
}

}  // namespace kvcal
