#include "family/tensor_tables.h"

namespace kvcal {

// Source: transformers, models/glm.
Architecture glm_architecture() {
  return {
      .name = "glm",
      .model_types = {"glm"},
      .attention_class = "GlmAttention",
      .description = "GLM-4-9B, GLM-Edge",
      .defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
                      "attention_bias": true, "partial_rotary_factor": 0.5})",
      .switches = {{"attention_bias", &ModelConfig::attention_bias}},
      .rope_is_interleaved = true,
      .model_tensors = model_rows(),
      .layer_tensors = joined({pre_norm_rows(), attention_rows(), fused_mlp_rows()}),
  };
}

}  // namespace kvcal
