#include "family/tensor_tables.h"

namespace kvcal {

// Qwen 3 MoE whose layers with a window have a rope of their own. Source: transformers,
// models/mellum.
Architecture mellum_architecture() {
  return {
      .name = "mellum",
      .model_types = {"mellum"},
      .attention_class = "MellumAttention",
      .description = "Mellum 2",
      .defaults = R"({"num_key_value_heads": 4, "head_dim": 128, "sliding_window": 1024,
                      "max_window_layers": 10000, "num_experts": 64, "num_experts_per_tok": 8,
                      "moe_intermediate_size": 896, "norm_topk_prob": true,
                      "first_k_dense_replace": 0, "partial_rotary_factor": 1.0,
                      "rope_parameters": {
                        "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .expert_layers = ExpertLayers::kTyped,
      .sliding_window = SlidingWindow::kFromMaxWindowLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                               expert_rows(kProjExperts)}),
      .ignored_prefixes = {"mtp."},
  };
}

}  // namespace kvcal
