#include "family/tensor_tables.h"

namespace kvcal {

Architecture hunyuan_v1_dense_architecture();

// Hunyuan within HunyuanOCR. Source: transformers, models/hunyuan_vl.
Architecture hunyuan_vl_architecture() {
  Architecture family = hunyuan_v1_dense_architecture();
  family.name = "hunyuan_vl";
  family.model_types = {"hunyuan_vl_text"};
  family.attention_class = "HunYuanVLDenseV1Attention";
  family.description = "text model of HunyuanOCR";
  family.defaults = R"({"rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
  family.text_defaults = R"({"vocab_size": 290943, "hidden_size": 4096, "intermediate_size": 11008,
                             "num_hidden_layers": 32, "num_attention_heads": 32,
                             "max_position_embeddings": 2048})";
  family.aliases = {{"head_dim", "attention_head_dim"}, {"vocab_size", "org_vocab_size"}};
  family.known_keys.insert(family.known_keys.end(), {"vision_config", "org_vocab_size"});
  return family;
}

}  // namespace kvcal
