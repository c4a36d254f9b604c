#include "family/tensor_tables.h"

namespace kvcal {

// Llama's attention, DeepSeek-V3's experts in every layer. Source: transformers, models/solar_open.
Architecture solar_open_architecture() {
  return {
      .name = "solar_open",
      .model_types = {"solar_open"},
      .attention_class = "SolarOpenAttention",
      .description = "Solar Open",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "rope_theta": 1e6, "intermediate_size": 10240,
                      "moe_intermediate_size": 1280, "num_experts_per_tok": 8,
                      "n_shared_experts": 1, "n_routed_experts": 128, "n_group": 1,
                      "topk_group": 1, "norm_topk_prob": true,
                      "partial_rotary_factor": 1.0})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .known_keys = {"first_k_dense_replace"},
      .expert_layers = ExpertLayers::kAll,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), expert_rows(kProjExperts),
                               correction_rows(), shared_expert_rows()}),
  };
}

}  // namespace kvcal
