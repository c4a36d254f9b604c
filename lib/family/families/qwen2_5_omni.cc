#include "family/tensor_tables.h"

namespace kvcal {

Architecture qwen2_vl_architecture();

// Qwen2 within the thinker of Qwen2.5-Omni. Source: transformers, models/qwen2_5_omni.
Architecture qwen2_5_omni_architecture() {
  Architecture family = qwen2_vl_architecture();
  family.name = "qwen2_5_omni";
  family.model_types = {"qwen2_5_omni_text"};
  family.attention_class = "Qwen2_5OmniAttention";
  family.description = "text model of Qwen2.5-Omni's thinker";
  family.defaults = R"({"sliding_window": 32768, "max_window_layers": 28, "rope_theta": 1e6,
                        "num_key_value_heads": 4, "tie_word_embeddings": true})";
  family.text_defaults = R"({"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
                             "num_hidden_layers": 28, "num_attention_heads": 28,
                             "max_position_embeddings": 32768})";
  family.known_keys = {};
  return family;
}

}  // namespace kvcal
