#include "family/tensor_tables.h"

namespace kvcal {

// Llama with LayerNorms that have no weights. Source: transformers, models/olmo.
Architecture olmo_architecture() {
  return {
      .name = "olmo",
      .model_types = {"olmo"},
      .attention_class = "OlmoAttention",
      .description = "OLMo 1",
      .defaults = R"({"rms_norm_eps": 1e-5})",
      .switches = attention_bias_switches(),
      .numbers = {{"clip_qkv", &ModelConfig::qkv_limit}},
      .centers_norm = true,
      .plain_norms = {Role::kInputNorm, Role::kMlpNorm, Role::kFinalNorm},
      .model_tensors = {{Role::kEmbedding, "embed_tokens.weight", {Dim::kVocab, Dim::kHidden}},
                        {Role::kLmHead,
                         "lm_head.weight",
                         {Dim::kVocab, Dim::kHidden},
                         {unless(&ModelConfig::tie_word_embeddings)}}},
      .layer_tensors = joined({attention_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
