#include "family/tensor_tables.h"

namespace kvcal {

// The dense Hunyuan's attention, experts of the MLP's width beside an expert for all tokens.
// Source: transformers, models/hunyuan_v1_moe.
Architecture hunyuan_v1_moe_architecture() {
  return {
      .name = "hunyuan_v1_moe",
      .model_types = {"hunyuan_v1_moe"},
      .attention_class = "HunYuanMoEV1Attention",
      .description = "Hunyuan A13B",
      .defaults = R"({"rms_norm_eps": 1e-5, "num_experts": 1, "moe_topk": 1,
                      "n_shared_experts": 1})",
      .aliases = {{"num_experts_per_tok", "moe_topk"},
                  {"moe_intermediate_size", "intermediate_size"}},
      .switches = attention_bias_switches(),
      .known_keys = {"num_shared_expert", "use_qk_norm"},
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .norms_after_rope = true,
      .has_rope_alpha = true,
      .expert_layers = ExpertLayers::kAll,
      .model_tensors = model_rows(),
      .layer_tensors = joined(
          {pre_norm_rows(), attention_rows(),
           head_norm_rows("self_attn.query_layernorm.weight", "self_attn.key_layernorm.weight"),
           expert_rows({.router = "mlp.gate.wg.weight",
                        .gate = "mlp.experts.{}.gate_proj.weight",
                        .up = "mlp.experts.{}.up_proj.weight",
                        .down = "mlp.experts.{}.down_proj.weight"}),
           shared_expert_rows({.gate = "mlp.shared_mlp.gate_proj.weight",
                               .up = "mlp.shared_mlp.up_proj.weight",
                               .down = "mlp.shared_mlp.down_proj.weight"})}),
  };
}

}  // namespace kvcal
