#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/qwen3.
Architecture qwen3_architecture() {
  return {
      .name = "qwen3",
      .model_types = {"qwen3"},
      .attention_class = "Qwen3Attention",
      .description = "Qwen3",
      .defaults = R"({"head_dim": 128, "num_key_value_heads": 32, "sliding_window": 4096,
                      "max_window_layers": 28})",
      .text_defaults = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                           "num_hidden_layers": 32, "num_attention_heads": 32,
                           "max_position_embeddings": 32768})",
      .switches = attention_bias_switches(),
      .sliding_window = SlidingWindow::kAfterMaxWindowLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
