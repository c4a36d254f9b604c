#include "family/tensor_tables.h"

namespace kvcal {

Architecture glm4_architecture();

// GLM-4 within GLM-4.1V; Q, K and V have biases. Source: transformers, models/glm4v.
Architecture glm4v_architecture() {
  Architecture family = glm4_architecture();
  family.name = "glm4v";
  family.model_types = {"glm4v_text"};
  family.attention_class = "Glm4vTextAttention";
  family.description = "text model of GLM-4.1V, GLM-4.6V-Flash";
  family.defaults = R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5,
                        "partial_rotary_factor": 1.0})";
  family.text_defaults = R"({"vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696,
                             "num_hidden_layers": 40, "num_attention_heads": 32,
                             "max_position_embeddings": 32768})";
  family.switches = {};
  family.known_keys = {"attention_bias"};
  family.resolve = [](const Json&, ModelConfig& config) { config.attention_bias = true; };
  return family;
}

}  // namespace kvcal
