#include "family/tensor_tables.h"

namespace kvcal {

// OLMoE's attention with partial rope, Mixtral's experts with sigmoid routing. Source:
// transformers, models/minimax_m2.
Architecture minimax_m2_architecture() {
  return {
      .name = "minimax_m2",
      .model_types = {"minimax_m2"},
      .attention_class = "MiniMaxM2Attention",
      .description = "MiniMax-M2, M2.1, M2.5",
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5e6,
                      "num_local_experts": 256, "num_experts_per_tok": 8,
                      "partial_rotary_factor": 1.0})",
      .aliases = {{"num_experts", "num_local_experts"}},
      .fixed = {{"use_qk_norm", "true"},
                {"qk_norm_type", "\"per_layer\""},
                {"scoring_func", "\"sigmoid\""},
                {"shared_intermediate_size", "0"}},
      .known_keys = {"use_routing_bias", "attn_type_list"},
      .resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; },
      .counts_rotary_dim = true,
      .expert_layers = ExpertLayers::kAll,
      .qk_norm = QkNorm::kWhole,
      .router_score = RouterScore::kSigmoid,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), whole_norm_rows(),
                               expert_rows(kMixtralExperts),
                               correction_rows("block_sparse_moe.e_score_correction_bias")}),
  };
}

}  // namespace kvcal
