#include "family/tensor_tables.h"

namespace kvcal {

// Gemma 2 without norms of outputs. Source: transformers, models/vaultgemma.
Architecture vaultgemma_architecture() {
  return {
      .name = "vaultgemma",
      .model_types = {"vaultgemma"},
      .attention_class = "VaultGemmaAttention",
      .description = "VaultGemma",
      .defaults = R"({"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
                      "max_position_embeddings": 8192, "tie_word_embeddings": true,
                      "hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
                      "sliding_window": 4096, "sliding_window_pattern": 2,
                      "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})",
      .aliases = {{"hidden_act", "hidden_activation"}},
      .switches = attention_bias_switches(),
      .numbers = {{"query_pre_attn_scalar", &ModelConfig::softmax_scale,
                   NumberKey::Reading::kInverseSquareRoot},
                  {"attn_logit_softcapping", &ModelConfig::attention_softcap},
                  {"final_logit_softcapping", &ModelConfig::logits_softcap}},
      .norm_adds_one = true,
      .scales_embedding = true,
      .sliding_window = SlidingWindow::kPattern,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({{{Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
                   {Role::kMlpNorm, "pre_feedforward_layernorm.weight", {Dim::kHidden}}},
                  attention_rows(),
                  mlp_rows()}),
  };
}

}  // namespace kvcal
