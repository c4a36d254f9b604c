#include "family/tensor_tables.h"

namespace kvcal {

namespace {

TensorRows glm4_norm_rows() {
  return {
      {Role::kInputNorm, "input_layernorm.weight", {Dim::kHidden}},
      {Role::kAttentionOutputNorm, "post_self_attn_layernorm.weight", {Dim::kHidden}},
      {Role::kMlpNorm, "post_attention_layernorm.weight", {Dim::kHidden}},
      {Role::kMlpOutputNorm, "post_mlp_layernorm.weight", {Dim::kHidden}},
  };
}

}  // namespace

// GLM with norms on both sides. Source: transformers, models/glm4.
Architecture glm4_architecture() {
  return {
      .name = "glm4",
      .model_types = {"glm4"},
      .attention_class = "Glm4Attention",
      .description = "GLM-4-0414, GLM-Z1",
      .defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
                      "attention_bias": true, "partial_rotary_factor": 0.5})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias}},
      .rope_is_interleaved = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined({glm4_norm_rows(), attention_rows(), fused_mlp_rows()}),
  };
}

}  // namespace kvcal
