#include "family/tensor_tables.h"

namespace kvcal {

Architecture ernie4_5_architecture();

// ERNIE 4.5 within PaddleOCR-VL, whose RoPE turns halves. Source: transformers,
// models/paddleocr_vl.
Architecture paddleocr_vl_architecture() {
  Architecture family = ernie4_5_architecture();
  family.name = "paddleocr_vl";
  family.model_types = {"paddleocr_vl_text"};
  family.attention_class = "PaddleOCRAttention";
  family.description = "text model of PaddleOCR-VL";
  family.text_defaults = R"({"vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072,
                             "num_hidden_layers": 18, "num_attention_heads": 16,
                             "max_position_embeddings": 131072})";
  family.known_keys = {"vision_config"};
  family.rope_is_interleaved = false;
  return family;
}

}  // namespace kvcal
