#include "family/tensor_tables.h"

namespace kvcal {

// DeepSeek-V3's attention with an MLP in every layer. Source: transformers, models/youtu.
Architecture youtu_architecture() {
  return {
      .name = "youtu",
      .model_types = {"youtu"},
      .attention_class = "YoutuAttention",
      .description = "Youtu-LLM",
      .defaults = R"({"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                      "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_interleave": true,
                      "tie_word_embeddings": true})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"rope_interleave", &ModelConfig::rope_is_interleaved}},
      .known_keys = {"mlp_bias"},
      .has_latent_attention = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
