#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/mistral.
Architecture mistral_architecture() {
  return {
      .name = "mistral",
      .model_types = {"mistral"},
      .attention_class = "MistralAttention",
      .description = "Mistral 7B, Nemo, Small 3, Ministral 8B",
      .text_defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                           "num_hidden_layers": 32, "num_attention_heads": 32,
                           "num_key_value_heads": 8, "max_position_embeddings": 131072,
                           "sliding_window": 4096})",
      .sliding_window = SlidingWindow::kAllLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
