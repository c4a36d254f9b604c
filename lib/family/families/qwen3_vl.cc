#include "family/tensor_tables.h"

namespace kvcal {

// Qwen3 within Qwen3-VL; no layer has a window. Source: transformers, models/qwen3_vl.
Architecture qwen3_vl_architecture() {
  return {
      .name = "qwen3_vl",
      .model_types = {"qwen3_vl_text"},
      .attention_class = "Qwen3VLTextAttention",
      .description = "text model of Qwen3-VL",
      .defaults = R"({"head_dim": 128, "rope_theta": 500000})",
      .text_defaults = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                           "num_hidden_layers": 32, "num_attention_heads": 32,
                           "num_key_value_heads": 32, "max_position_embeddings": 128000})",
      .switches = attention_bias_switches(),
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
