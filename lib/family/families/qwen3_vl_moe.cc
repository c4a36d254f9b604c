#include "family/tensor_tables.h"

namespace kvcal {

// Qwen3-MoE within Qwen3-VL-MoE. Published checkpoints stack the experts as [in, out], those that
// transformers 5 saves as [out, in]. Source: transformers, models/qwen3_vl_moe.
Architecture qwen3_vl_moe_architecture() {
  return {
      .name = "qwen3_vl_moe",
      .model_types = {"qwen3_vl_moe_text"},
      .attention_class = "Qwen3VLMoeTextAttention",
      .description = "text model of Qwen3-VL-30B-A3B, Qwen3-VL-235B-A22B",
      .defaults = R"({"decoder_sparse_step": 1, "rope_theta": 500000, "moe_intermediate_size": 1408,
                      "num_experts_per_tok": 4, "num_experts": 60})",
      .text_defaults = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
                           "num_hidden_layers": 24, "num_attention_heads": 16,
                           "num_key_value_heads": 16, "max_position_embeddings": 128000,
                           "tie_word_embeddings": true})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = attention_bias_switches(),
      .known_keys = {"norm_topk_prob"},
      .resolve =
          [](const Json&, ModelConfig& config) {
            config.norm_topk_prob = true;
            config.experts_in_out = true;
          },
      .expert_layers = ExpertLayers::kEveryStep,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                  with(when(&ModelConfig::experts_in_out), fused_expert_rows(Layout::kInOut)),
                  with(unless(&ModelConfig::experts_in_out), fused_expert_rows(Layout::kOutIn))}),
  };
}

}  // namespace kvcal
