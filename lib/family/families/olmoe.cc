#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/olmoe.
Architecture olmoe_architecture() {
  return {
      .name = "olmoe",
      .model_types = {"olmoe"},
      .attention_class = "OlmoeAttention",
      .description = "OLMoE",
      .defaults = R"({"rms_norm_eps": 1e-5, "num_experts_per_tok": 8, "num_experts": 64})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"clip_qkv", &ModelConfig::qkv_limit}},
      .expert_layers = ExpertLayers::kAll,
      .qk_norm = QkNorm::kWhole,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), attention_rows(), whole_norm_rows(), expert_rows(kProjExperts)}),
  };
}

}  // namespace kvcal
