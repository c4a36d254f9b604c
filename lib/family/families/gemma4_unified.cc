#include "family/tensor_tables.h"

namespace kvcal {

Architecture gemma4_architecture();

// Gemma 4 without layers' own inputs and without experts. Source: transformers 5.23,
// models/gemma4_unified.
Architecture gemma4_unified_architecture() {
  Architecture family = gemma4_architecture();
  family.name = "gemma4_unified";
  family.model_types = {"gemma4_unified_text"};
  family.attention_class = "Gemma4UnifiedTextAttention";
  family.description = "Gemma 4 12B, also the text part of multimodal checkpoints";
  family.defaults = R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216,
                        "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
                        "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 262144,
                        "tie_word_embeddings": true, "hidden_act": "gelu_pytorch_tanh",
                        "sliding_window": 1024, "sliding_window_pattern": 6,
                        "rope_parameters": {
                          "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                          "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                             "partial_rotary_factor": 0.25}}})";
  family.has_mlp_beside_experts = false;
  family.expert_layers = ExpertLayers::kNone;
  family.model_tensors = model_rows();
  family.layer_tensors = joined({sandwich_norm_rows(),
                                 shared_cache_attention_rows(),
                                 mlp_rows(),
                                 {{Role::kLayerScalar, "layer_scalar", {Dim::kOne}}}});
  return family;
}

}  // namespace kvcal
