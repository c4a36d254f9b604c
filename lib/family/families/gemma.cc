#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/gemma.
Architecture gemma_architecture() {
  return {
      .name = "gemma",
      .model_types = {"gemma"},
      .attention_class = "GemmaAttention",
      .description = "Gemma 1, CodeGemma",
      .defaults = R"({"head_dim": 256, "num_attention_heads": 16, "num_key_value_heads": 16,
                      "max_position_embeddings": 8192, "tie_word_embeddings": true,
                      "hidden_act": "gelu_pytorch_tanh"})",
      .aliases = {{"hidden_act", "hidden_activation"}},
      .switches = attention_bias_switches(),
      // The first checkpoints have "gelu" but use its approximation.
      .resolve =
          [](const Json&, ModelConfig& config) {
            if (config.activation == Activation::kGelu) config.activation = Activation::kGeluTanh;
          },
      .norm_adds_one = true,
      .scales_embedding = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
