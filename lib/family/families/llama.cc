#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/llama.
Architecture llama_architecture() {
  return {
      .name = "llama",
      .model_types = {"llama"},
      .attention_class = "LlamaAttention",
      .description =
          "Llama 2, 3, 3.1, 3.2, 3.3, Yi, TinyLlama, SmolLM 1 and 2, DeepSeek-R1 distills",
      .text_defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                           "num_hidden_layers": 32, "num_attention_heads": 32,
                           "max_position_embeddings": 2048})",
      .switches = bias_switches(),
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
