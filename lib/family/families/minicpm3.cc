#include <cmath>

#include "family/tensor_tables.h"

namespace kvcal {

namespace {

/// Multipliers of the model's size: scale_depth / sqrt(layers), and dim_model_base / hidden_size
/// for the input of lm_head; 1 where the keys are null.
void resolve_multipliers(const Json& config, ModelConfig& resolved) {
  const auto is_null = [&](std::string_view key) {
    const auto it = config.find(std::string(key));
    return it != config.end() && it->is_null();
  };
  if (!is_null("scale_depth"))
    resolved.residual_multiplier /= std::sqrt(static_cast<float>(resolved.num_hidden_layers));
  if (!is_null("dim_model_base"))
    resolved.head_input_multiplier /= static_cast<float>(resolved.hidden_size);
}

}  // namespace

// DeepSeek's latent attention with multipliers. Source: transformers, models/minicpm3.
Architecture minicpm3_architecture() {
  return {
      .name = "minicpm3",
      .model_types = {"minicpm3"},
      .attention_class = "MiniCPM3Attention",
      .description = "MiniCPM3",
      .defaults = R"({"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64,
                      "qk_rope_head_dim": 32, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
                      "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"mlp_bias", &ModelConfig::mlp_bias}},
      .numbers = {{"scale_emb", &ModelConfig::embedding_multiplier},
                  {"scale_depth", &ModelConfig::residual_multiplier},
                  {"dim_model_base", &ModelConfig::head_input_multiplier}},
      .resolve = resolve_multipliers,
      .has_latent_attention = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), latent_attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
