#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/qwen2.
Architecture qwen2_architecture() {
  return {
      .name = "qwen2",
      .model_types = {"qwen2"},
      .attention_class = "Qwen2Attention",
      .description = "Qwen2, Qwen2.5, QwQ, DeepSeek-R1 distills on Qwen",
      .defaults = R"({"sliding_window": 4096, "max_window_layers": 28})",
      .text_defaults = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                           "num_hidden_layers": 32, "num_attention_heads": 32,
                           "num_key_value_heads": 32, "max_position_embeddings": 32768})",
      .resolve = [](const Json&, ModelConfig& config) { config.attention_bias = true; },
      .sliding_window = SlidingWindow::kAfterMaxWindowLayers,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
