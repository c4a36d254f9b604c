#include "family/tensor_tables.h"

namespace kvcal {

Architecture glm4_moe_architecture();

// GLM-4.5 within GLM-4.5V. Source: transformers, models/glm4v_moe.
Architecture glm4v_moe_architecture() {
  Architecture family = glm4_moe_architecture();
  family.draft = DraftLayer::kNone;  // no engine has been asked for its names
  family.name = "glm4v_moe";
  family.model_types = {"glm4v_moe_text"};
  family.attention_class = "Glm4vMoeTextAttention";
  family.description = "text model of GLM-4.5V, GLM-4.6V";
  family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attention_bias": true,
                        "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408,
                        "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128,
                        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
                        "norm_topk_prob": true})";
  family.text_defaults = R"({"vocab_size": 151424, "hidden_size": 4096, "intermediate_size": 10944,
                             "num_hidden_layers": 46, "num_attention_heads": 96,
                             "max_position_embeddings": 65536})";
  family.fixed = {{"use_qk_norm", "false"}};
  return family;
}

}  // namespace kvcal
