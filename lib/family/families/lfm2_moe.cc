#include "family/tensor_tables.h"

namespace kvcal {

// LFM2 with experts, which a sigmoid chooses. Source: transformers, models/lfm2_moe.
Architecture lfm2_moe_architecture() {
  return {
      .name = "lfm2_moe",
      .model_types = {"lfm2_moe"},
      .attention_class = "Lfm2MoeAttention",
      .description = "LFM2-8B-A1B",
      .defaults = R"({"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 1000000.0,
                      "tie_word_embeddings": true, "conv_L_cache": 3, "conv_bias": false,
                      "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4,
                      "moe_intermediate_size": 1792, "norm_topk_prob": true})",
      .aliases = {{"rms_norm_eps", "norm_eps"},
                  {"tie_word_embeddings", "tie_embedding"},
                  {"first_k_dense_replace", "num_dense_layers"}},
      .switches = {{"conv_bias", &ModelConfig::mixer_bias},
                   {"conv_bias", &ModelConfig::mixer_output_bias},
                   {"conv_bias", &ModelConfig::has_conv_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"use_expert_bias", "true"}},
      .recurrence = Mixer::kShortConvolution,
      .expert_layers = ExpertLayers::kAfterFirst,
      .router_score = RouterScore::kSigmoid,
      .model_tensors =
          model_rows_named("embed_tokens.weight", "embedding_norm.weight", "lm_head.weight"),
      .layer_tensors = joined({lfm2_rows(),
                               expert_rows({.router = "feed_forward.gate.weight",
                                            .gate = "feed_forward.experts.{}.w1.weight",
                                            .up = "feed_forward.experts.{}.w3.weight",
                                            .down = "feed_forward.experts.{}.w2.weight"}),
                               correction_rows("feed_forward.expert_bias")}),
  };
}

}  // namespace kvcal
