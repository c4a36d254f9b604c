#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/gemma3.
Architecture gemma3_architecture() {
  return {
      .name = "gemma3",
      .model_types = {"gemma3_text"},
      .attention_class = "Gemma3Attention",
      .description = "Gemma 3, also the text part of multimodal checkpoints",
      .defaults = R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                      "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                      "head_dim": 256, "max_position_embeddings": 131072,
                      "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh",
                      "query_pre_attn_scalar": 256, "sliding_window": 4096,
                      "sliding_window_pattern": 6, "rope_theta": 1e6,
                      "rope_local_base_freq": 10000.0})",
      .aliases = {{"hidden_act", "hidden_activation"}},
      .switches = attention_bias_switches(),
      .numbers = {{"query_pre_attn_scalar", &ModelConfig::softmax_scale,
                   NumberKey::Reading::kInverseSquareRoot},
                  {"final_logit_softcapping", &ModelConfig::logits_softcap}},
      .fixed = {{"use_bidirectional_attention", "false"}, {"attn_logit_softcapping", "null"}},
      .norm_adds_one = true,
      .scales_embedding = true,
      .local_rope = LocalRope::kOwnTheta,
      .sliding_window = SlidingWindow::kPattern,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({sandwich_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows()}),
  };
}

}  // namespace kvcal
