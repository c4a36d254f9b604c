#include "family/tensor_tables.h"

namespace kvcal {

// Norms without weights, also of the embedding and of turned Q and K. Source: transformers,
// models/nanochat.
Architecture nanochat_architecture() {
  return {
      .name = "nanochat",
      .model_types = {"nanochat"},
      .attention_class = "NanoChatAttention",
      .description = "nanochat",
      .defaults = R"({"hidden_act": "relu2", "max_position_embeddings": 2048,
                      "final_logit_softcapping": 15.0})",
      .switches = attention_bias_switches(),
      .numbers = {{"final_logit_softcapping", &ModelConfig::logits_softcap}},
      .norms_embedding = true,
      .plain_norms = {Role::kInputNorm, Role::kMlpNorm, Role::kFinalNorm, Role::kQueryNorm,
                      Role::kKeyNorm},
      .rope_turns_back = true,
      .norms_after_rope = true,
      .model_tensors = {{Role::kEmbedding, "embed_tokens.weight", {Dim::kVocab, Dim::kHidden}},
                        {Role::kLmHead,
                         "lm_head.weight",
                         {Dim::kVocab, Dim::kHidden},
                         {unless(&ModelConfig::tie_word_embeddings)}}},
      .layer_tensors = joined({attention_rows(), plain_mlp_rows("mlp.fc1.weight", "mlp.fc1.bias",
                                                                "mlp.fc2.weight", "mlp.fc2.bias")}),
  };
}

}  // namespace kvcal
