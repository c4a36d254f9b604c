#include "family/tensor_tables.h"

namespace kvcal {

// Qwen 3's attention, sigmoid routing and a shared expert. Source: transformers, models/hy_v3.
Architecture hy_v3_architecture() {
  return {
      .name = "hy_v3",
      .model_types = {"hy_v3"},
      .attention_class = "HYV3Attention",
      .description = "Hunyuan 3",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                      "rope_theta": 11158840.0, "num_experts": 192, "num_experts_per_tok": 8,
                      "num_shared_experts": 1, "moe_intermediate_size": 1536,
                      "first_k_dense_replace": 1, "router_scaling_factor": 2.826})",
      .aliases = {{"n_shared_experts", "num_shared_experts"}},
      .switches = attention_bias_switches(),
      .numbers = {{"router_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"mlp_bias", "false"}},
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .has_prediction_layers = true,
      .expert_layers = ExpertLayers::kTyped,
      .router_score = RouterScore::kSigmoid,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                               expert_rows({.router = "mlp.router.gate.weight",
                                            .gate = "mlp.experts.{}.gate_proj.weight",
                                            .up = "mlp.experts.{}.up_proj.weight",
                                            .down = "mlp.experts.{}.down_proj.weight"}),
                               correction_rows("mlp.expert_bias"),
                               shared_expert_rows({.gate = "mlp.shared_mlp.gate_proj.weight",
                                                   .up = "mlp.shared_mlp.up_proj.weight",
                                                   .down = "mlp.shared_mlp.down_proj.weight"})}),
  };
}

}  // namespace kvcal
