#include "family/tensor_tables.h"

namespace kvcal {

// OLMo 2's attention and norms, OLMoE's experts. Source: transformers, models/flex_olmo.
Architecture flex_olmo_architecture() {
  return {
      .name = "flex_olmo",
      .model_types = {"flex_olmo"},
      .attention_class = "FlexOlmoAttention",
      .description = "FlexOlmo",
      .defaults = R"({"rope_theta": 500000, "num_experts_per_tok": 5, "num_experts": 7})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .expert_layers = ExpertLayers::kAll,
      .qk_norm = QkNorm::kWhole,
      .model_tensors = model_rows(),
      .layer_tensors = joined(
          {post_norm_rows(), attention_rows(), whole_norm_rows(), expert_rows(kProjExperts)}),
  };
}

}  // namespace kvcal
