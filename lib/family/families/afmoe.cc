#include <cmath>

#include "family/tensor_tables.h"

namespace kvcal {

namespace {

void resolve_embedding(const Json& config, ModelConfig& resolved) {
  resolved.norm_topk_prob = true;
  if (optional_bool(config, "mup_enabled").value_or(false))
    resolved.embedding_multiplier = std::sqrt(static_cast<float>(resolved.hidden_size));
}

}  // namespace

// Gated attention, norms before and behind, sigmoid routing. Source: transformers, models/afmoe.
Architecture afmoe_architecture() {
  return {
      .name = "afmoe",
      .model_types = {"afmoe"},
      .attention_class = "AfmoeAttention",
      .description = "Trinity",
      .defaults = R"({"head_dim": 128, "rms_norm_eps": 1e-5, "moe_intermediate_size": 1408,
                      "num_dense_layers": 1, "num_experts": 64, "num_experts_per_tok": 6,
                      "num_shared_experts": 2, "global_attn_every_n_layers": 4,
                      "sliding_window": 1024})",
      .aliases = {{"first_k_dense_replace", "num_dense_layers"},
                  {"n_shared_experts", "num_shared_experts"},
                  {"sliding_window_pattern", "global_attn_every_n_layers"}},
      .switches = attention_bias_switches(),
      .numbers = {{"route_scale", &ModelConfig::routed_scaling_factor}},
      .known_keys = {"mup_enabled", "route_norm", "score_func", "n_group", "topk_group",
                     "num_expert_groups", "num_limited_groups"},
      .resolve = resolve_embedding,
      .has_query_gate = true,
      .expert_layers = ExpertLayers::kAfterFirst,
      .positions = Positions::kRopeInSlidingLayers,
      .sliding_window = SlidingWindow::kPattern,
      .router_score = RouterScore::kSigmoid,
      .model_tensors = model_rows(),
      .layer_tensors = joined(
          {{{Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
            {Role::kAttentionOutputNorm, "post_attention_layernorm.weight", {Dim::kHidden}},
            {Role::kMlpNorm, "pre_mlp_layernorm.weight", {Dim::kHidden}},
            {Role::kMlpOutputNorm, "post_mlp_layernorm.weight", {Dim::kHidden}},
            {Role::kQueryGate, "self_attn.gate_proj.weight", {Dim::kQueryWidth, Dim::kHidden}}},
           attention_rows(),
           head_norm_rows(),
           mlp_rows(),
           expert_rows({.router = "mlp.router.gate.weight",
                        .gate = "mlp.experts.{}.gate_proj.weight",
                        .up = "mlp.experts.{}.up_proj.weight",
                        .down = "mlp.experts.{}.down_proj.weight"}),
           correction_rows("mlp.expert_bias"),
           shared_expert_rows()}),
  };
}

}  // namespace kvcal
