#include "family/tensor_tables.h"

namespace kvcal {

namespace {

void check_method(const Json& config, ModelConfig&) {
  const std::string method = optional_string(config, "topk_method").value_or("greedy");
  if (method != "greedy" && method != "group_limited_greedy")
    fail("key 'topk_method' is '", method, "', expected greedy or group_limited_greedy");
}

}  // namespace

// Source: transformers, models/deepseek_v2.
Architecture deepseek_v2_architecture() {
  return {
      .name = "deepseek_v2",
      .model_types = {"deepseek_v2"},
      .attention_class = "DeepseekV2Attention",
      .description = "DeepSeek-V2, V2-Lite, V2.5, Coder-V2",
      .defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64,
                      "n_shared_experts": 2, "moe_intermediate_size": 1407,
                      "first_k_dense_replace": 0, "topk_method": "greedy"})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"mlp_bias", &ModelConfig::mlp_bias}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"norm_topk_prob", "false"},
                {"moe_layer_freq", "1"},
                {"scoring_func", "\"softmax\""}},
      .resolve = check_method,
      .rope_is_interleaved = true,
      .has_latent_attention = true,
      .expert_layers = ExpertLayers::kAfterFirst,
      .group_score = GroupScore::kLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows(),
                               expert_rows(kProjExperts), shared_expert_rows()}),
  };
}

}  // namespace kvcal
