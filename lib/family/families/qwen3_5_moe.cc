#include "family/tensor_tables.h"

namespace kvcal {

Architecture qwen3_5_architecture();

// Qwen3.5 with experts instead of MLPs. Source: transformers, models/qwen3_5_moe.
Architecture qwen3_5_moe_architecture() {
  Architecture family = qwen3_5_architecture();
  family.name = "qwen3_5_moe";
  family.model_types = {"qwen3_5_moe_text"};
  family.attention_class = "Qwen3_5MoeAttention";
  family.description = "Qwen3.5, Qwen3.6 with experts";
  family.defaults = R"({"head_dim": 256, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
                        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                        "linear_value_head_dim": 128, "linear_num_key_heads": 16,
                        "linear_num_value_heads": 32, "full_attention_interval": 4,
                        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                        "num_experts_per_tok": 8, "num_experts": 256})";
  family.text_defaults = R"({"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
                             "num_attention_heads": 16, "max_position_embeddings": 32768})";
  family.aliases = {{"num_experts", "num_local_experts"}};
  family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
  family.intermediate_multiple = 1;  // no layer has an MLP
  family.expert_layers = ExpertLayers::kAll;
  family.layer_tensors =
      joined({pre_norm_rows(), with(when(&LayerConfig::has_attention), gated_attention_rows()),
              with(when(&LayerConfig::has_recurrence), split_delta_net_rows()),
              fused_expert_rows(Layout::kOutIn), gated_shared_expert_rows()});
  return family;
}

}  // namespace kvcal
