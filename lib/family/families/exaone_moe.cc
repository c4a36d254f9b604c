#include "family/tensor_tables.h"

namespace kvcal {

// EXAONE 4's attention with norms before, DeepSeek-V3's experts. Source: transformers,
// models/exaone_moe.
Architecture exaone_moe_architecture() {
  return {
      .name = "exaone_moe",
      .model_types = {"exaone_moe"},
      .attention_class = "ExaoneMoeAttention",
      .description = "K-EXAONE",
      .defaults = R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096,
                      "sliding_window_pattern": 4, "first_k_dense_replace": 1,
                      "moe_intermediate_size": 1024, "num_experts": 64,
                      "num_experts_per_tok": 8, "num_shared_experts": 1, "n_group": 1,
                      "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5})",
      .aliases = {{"n_shared_experts", "num_shared_experts"}},
      .switches = {{"norm_topk_prob", &ModelConfig::norm_topk_prob}},
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .expert_layers = ExpertLayers::kTyped,
      .positions = Positions::kRopeInSlidingLayers,
      .sliding_window = SlidingWindow::kPattern,
      .router_score = RouterScore::kSigmoid,
      .group_score = GroupScore::kSumOfTwoLargest,
      .model_tensors = model_rows(),
      .layer_tensors =
          joined({pre_norm_rows(), attention_rows(), head_norm_rows(), mlp_rows(),
                  expert_rows(kProjExperts), correction_rows("mlp.e_score_correction_bias"),
                  shared_expert_rows()}),
      .ignored_prefixes = {"mtp."},
  };
}

}  // namespace kvcal
