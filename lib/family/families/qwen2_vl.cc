#include "family/tensor_tables.h"

namespace kvcal {

Architecture qwen2_architecture();

// Qwen2 within Qwen2-VL. Source: transformers, models/qwen2_vl.
Architecture qwen2_vl_architecture() {
  Architecture family = qwen2_architecture();
  family.name = "qwen2_vl";
  family.model_types = {"qwen2_vl_text"};
  family.attention_class = "Qwen2VLAttention";
  family.description = "text model of Qwen2-VL, QVQ";
  family.defaults = R"({"sliding_window": 4096, "max_window_layers": 80, "rms_norm_eps": 1e-5,
                        "rope_theta": 1e6})";
  family.text_defaults = R"({"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568,
                             "num_hidden_layers": 80, "num_attention_heads": 64,
                             "num_key_value_heads": 8, "max_position_embeddings": 32768})";
  // Older checkpoints have these beside the text model's keys.
  family.known_keys = {"vision_config", "vision_start_token_id", "vision_end_token_id",
                       "image_token_id", "video_token_id"};
  return family;
}

}  // namespace kvcal
