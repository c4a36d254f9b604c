#include "family/tensor_tables.h"

namespace kvcal {

Architecture qwen3_moe_architecture();

// Qwen3 MoE within the thinker of Qwen3-Omni. Source: transformers, models/qwen3_omni_moe.
Architecture qwen3_omni_moe_architecture() {
  Architecture family = qwen3_moe_architecture();
  family.name = "qwen3_omni_moe";
  family.model_types = {"qwen3_omni_moe_text"};
  family.attention_class = "Qwen3OmniMoeThinkerTextAttention";
  family.description = "text model of Qwen3-Omni's thinker";
  family.defaults = R"({"decoder_sparse_step": 1, "num_key_value_heads": 4, "rope_theta": 1e6,
                        "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128,
                        "norm_topk_prob": true})";
  family.text_defaults = R"({"vocab_size": 3584, "hidden_size": 2048, "intermediate_size": 18944,
                             "num_hidden_layers": 28, "num_attention_heads": 28,
                             "max_position_embeddings": 32768})";
  return family;
}

}  // namespace kvcal
