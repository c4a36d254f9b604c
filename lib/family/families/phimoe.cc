#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/phimoe.
Architecture phimoe_architecture() {
  return {
      .name = "phimoe",
      .model_types = {"phimoe"},
      .attention_class = "PhimoeAttention",
      .description = "Phi-3.5-MoE",
      .defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
                      "num_experts_per_tok": 2, "num_local_experts": 16,
                      "router_jitter_noise": 0.01})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"lm_head_bias", &ModelConfig::lm_head_bias}},
      .numbers = {{"router_jitter_noise", &ModelConfig::router_jitter}},
      .centers_norm = true,
      .expert_layers = ExpertLayers::kAll,
      .sliding_window = SlidingWindow::kAllLayers,
      .router_score = RouterScore::kSparseMixer,
      .model_tensors = joined({model_rows(),
                               {{Role::kFinalNormBias, "norm.bias", {Dim::kHidden}},
                                {Role::kLmHeadBias,
                                 "lm_head.bias",
                                 {Dim::kVocab},
                                 {when(&ModelConfig::lm_head_bias)}}}}),
      .layer_tensors = joined(
          {pre_norm_rows(), pre_norm_bias_rows(), attention_rows(), expert_rows(kMixtralExperts)}),
  };
}

}  // namespace kvcal
