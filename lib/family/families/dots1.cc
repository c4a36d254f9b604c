#include "family/tensor_tables.h"

namespace kvcal {

// Qwen 3's attention, DeepSeek-V3's experts. Source: transformers, models/dots1.
Architecture dots1_architecture() {
  return {
      .name = "dots1",
      .model_types = {"dots1"},
      .attention_class = "Dots1Attention",
      .description = "dots.llm1",
      .defaults = R"({"num_key_value_heads": 32, "n_group": 1, "topk_group": 1,
                      "first_k_dense_replace": 0, "sliding_window": 4096,
                      "max_window_layers": 62})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = {{"attention_bias", &ModelConfig::attention_bias},
                   {"attention_bias", &ModelConfig::output_bias},
                   {"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .known_keys = {"scoring_func"},
      .expert_layers = ExpertLayers::kAfterFirst,
      .sliding_window = SlidingWindow::kFromMaxWindowLayers,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                               expert_rows(kProjExperts), correction_rows(), shared_expert_rows()}),
  };
}

}  // namespace kvcal
