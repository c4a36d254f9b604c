#include <algorithm>

#include "family/tensor_tables.h"

namespace kvcal {

namespace {

void resolve_gates(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  const double cap = number_of(config, "moe_router_logit_softcapping").value_or(0.0);
  resolved.moe.logits_softcap = static_cast<float>(std::max(cap, 0.0));
  const Json* gating = find_field(config, "gating");
  resolved.gates_whole_heads = !gating || *gating == true || *gating == "per-head";
}

}  // namespace

// Heads of Q by layer, a softplus gate of each head or element, sigmoid routing with a soft-cap.
// Source: transformers, models/laguna.
Architecture laguna_architecture() {
  return {
      .name = "laguna",
      .model_types = {"laguna"},
      .attention_class = "LagunaAttention",
      .description = "Laguna XS, Laguna M",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 512,
                      "first_k_dense_replace": 1, "num_experts": 256, "num_experts_per_tok": 8,
                      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                      "partial_rotary_factor": 1.0,
                      "rope_parameters": {
                        "full_attention": {"rope_type": "default", "rope_theta": 500000.0,
                                           "partial_rotary_factor": 0.5},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})",
      .switches = attention_bias_switches(),
      .numbers = {{"moe_routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"moe_apply_router_weight_on_input", "false"}},
      .known_keys = {"gating", "moe_router_logit_softcapping"},
      .resolve = resolve_gates,
      .has_query_gate = true,
      .has_softplus_gate = true,
      .has_heads_by_layer = true,
      .expert_layers = ExpertLayers::kTyped,
      .sliding_window = SlidingWindow::kTyped,
      .router_score = RouterScore::kSigmoid,
      .model_tensors = model_rows(),
      .layer_tensors = joined(
          {pre_norm_rows(),
           attention_rows(),
           head_norm_rows(),
           {{Role::kQueryGate, "self_attn.g_proj.weight", {Dim::kQueryGateWidth, Dim::kHidden}}},
           mlp_rows(),
           expert_rows(kProjExperts),
           correction_rows("mlp.experts.e_score_correction_bias"),
           shared_expert_rows({.gate = "mlp.shared_expert.gate_proj.weight",
                               .up = "mlp.shared_expert.up_proj.weight",
                               .down = "mlp.shared_expert.down_proj.weight"})}),
  };
}

}  // namespace kvcal
