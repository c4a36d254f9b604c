#include "family/tensor_tables.h"

namespace kvcal {

// DeepSeek-V2's experts, Llama's attention. Source: transformers, models/deepseek_ocr2.
Architecture deepseek_ocr2_architecture() {
  return {
      .name = "deepseek_ocr2",
      .model_types = {"deepseek_ocr2_text"},
      .attention_class = "DeepseekOcr2TextAttention",
      .description = "text model of DeepSeek-OCR-2",
      .defaults = R"({"n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407,
                      "first_k_dense_replace": 0})",
      .text_defaults = R"({"vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008,
                           "num_hidden_layers": 32, "num_attention_heads": 32,
                           "max_position_embeddings": 2048})",
      .aliases = {{"num_experts", "n_routed_experts"}},
      .switches = bias_switches(),
      .numbers = {{"routed_scaling_factor", &ModelConfig::routed_scaling_factor}},
      .fixed = {{"norm_topk_prob", "false"}, {"scoring_func", "\"softmax\""}},
      .known_keys = {"topk_method"},
      .expert_layers = ExpertLayers::kTyped,
      .group_score = GroupScore::kLargest,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows(),
                               expert_rows(kProjExperts), shared_expert_rows()}),
  };
}

}  // namespace kvcal
