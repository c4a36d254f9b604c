#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/qwen3_moe.
Architecture qwen3_moe_architecture() {
  return {
      .name = "qwen3_moe",
      .model_types = {"qwen3_moe"},
      .attention_class = "Qwen3MoeAttention",
      .description = "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
      .defaults = R"({"decoder_sparse_step": 1, "num_key_value_heads": 4, "sliding_window": 4096,
                      "moe_intermediate_size": 768, "num_experts_per_tok": 8,
                      "num_experts": 128})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .known_keys = {"max_window_layers"},
      .expert_layers = ExpertLayers::kEveryStep,
      .sliding_window = SlidingWindow::kAllWhereUsed,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                               expert_rows(kProjExperts)}),
  };
}

}  // namespace kvcal
