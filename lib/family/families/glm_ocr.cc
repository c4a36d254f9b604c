#include "family/tensor_tables.h"

namespace kvcal {

Architecture glm4v_architecture();

// The text model of GLM-4.1V without biases. Source: transformers, models/glm_ocr.
Architecture glm_ocr_architecture() {
  Architecture family = glm4v_architecture();
  family.name = "glm_ocr";
  family.model_types = {"glm_ocr_text"};
  family.attention_class = "GlmOcrTextAttention";
  family.description = "text model of GLM-OCR";
  family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5})";
  family.text_defaults = R"({"vocab_size": 59392, "hidden_size": 1024, "intermediate_size": 4096,
                             "num_hidden_layers": 16, "num_attention_heads": 16,
                             "max_position_embeddings": 131072})";
  family.resolve = nullptr;
  family.has_prediction_layers = true;
  return family;
}

}  // namespace kvcal
