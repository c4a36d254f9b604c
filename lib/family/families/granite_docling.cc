#include "family/tensor_tables.h"

namespace kvcal {

Architecture granite_architecture();

// Granite within Granite Docling. Source: transformers, models/granite_docling.
Architecture granite_docling_architecture() {
  Architecture family = granite_architecture();
  family.name = "granite_docling";
  family.model_types = {"granite_docling_text"};
  family.attention_class = "GraniteDoclingTextAttention";
  family.description = "text model of Granite Docling";
  family.defaults = R"({"attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
                        "logits_scaling": 4.0, "residual_multiplier": 0.263,
                        "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
  family.text_defaults = R"({"vocab_size": 133800, "hidden_size": 1024, "intermediate_size": 2048,
                             "num_hidden_layers": 28, "num_attention_heads": 16,
                             "num_key_value_heads": 4, "max_position_embeddings": 32768})";
  return family;
}

}  // namespace kvcal
