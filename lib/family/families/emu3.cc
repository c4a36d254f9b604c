#include "family/tensor_tables.h"

namespace kvcal {

Architecture llama_architecture();

// Llama within Emu3. Source: transformers, models/emu3.
Architecture emu3_architecture() {
  Architecture family = llama_architecture();
  family.name = "emu3";
  family.model_types = {"emu3_text_model"};
  family.attention_class = "Emu3Attention";
  family.description = "text model of Emu3";
  family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6})";
  family.text_defaults = R"({"vocab_size": 184622, "hidden_size": 4096, "intermediate_size": 14336,
                             "num_hidden_layers": 32, "num_attention_heads": 32,
                             "max_position_embeddings": 9216})";
  return family;
}

}  // namespace kvcal
