#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Windows follow no pattern that a number could give.
void require_layer_types(const Json& config, ModelConfig&) {
  if (!find_field(config, "layer_types")) fail_missing("layer_types", "a word for each layer");
}

}  // namespace

// Qwen 3 MoE with sinks, windows without full RoPE, and a shared expert. Source: transformers,
// models/flint.
Architecture flint_architecture() {
  return {
      .name = "flint",
      .model_types = {"flint"},
      .attention_class = "FlintAttention",
      .description = "Flint",
      .defaults = R"({"head_dim": 128, "num_key_value_heads": 4, "sliding_window": 513,
                      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 1024,
                      "num_experts": 256, "num_experts_per_tok": 6, "norm_topk_prob": true,
                      "decoder_sparse_step": 1, "mlp_only_layers": [0, 1]})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .resolve = require_layer_types,
      .expert_layers = ExpertLayers::kEveryStep,
      .positions = Positions::kRopeInSlidingLayers,
      .sliding_window = SlidingWindow::kAllOrTyped,
      .router_score = RouterScore::kSigmoid,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(),
                               attention_rows(),
                               head_norm_rows(),
                               {{Role::kSinks, "self_attn.softmax_offset", {Dim::kHeads}}},
                               mlp_rows(),
                               expert_rows(kProjExperts),
                               shared_expert_rows({.gate = "mlp.shared_expert.gate_proj.weight",
                                                   .up = "mlp.shared_expert.up_proj.weight",
                                                   .down = "mlp.shared_expert.down_proj.weight"})}),
  };
}

}  // namespace kvcal
